"""Golden tests of one statement, as a page and as a mail, and of its journal.

`TOOLKIT_GOLDEN=write` accepts a change; read the diff.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.unit.statements.statement_samples import ISSUE, LATE, SETTINGS, USES
from toolkit.accounting.attempt_names import Names
from toolkit.statements.build import Content, build
from toolkit.statements.documents import documents

GOLDEN = Path(__file__).parent / "expected"


def the_files():
    content = Content(USES, {"2026-10": LATE}, {"vision": 33_330_000})
    return documents(build(content, SETTINGS, ISSUE, Names.OWN), SETTINGS)


@pytest.mark.parametrize("name", ["vision.html", "vision.eml", "journal.csv"])
def test_the_files_are_as_reviewed(name):
    path = GOLDEN / name
    content = the_files()[name].replace(b"\r\n", b"\n")
    if os.environ.get("TOOLKIT_GOLDEN") == "write":
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
    assert content == path.read_bytes(), f"{name} differs; TOOLKIT_GOLDEN=write accepts it"


def test_the_page_needs_nothing_from_elsewhere():
    page = the_files()["vision.html"].decode()
    assert "default-src 'none'" in page
    for word in ("http:", "https:", "<script", "<img", "<link", "@import", "url("):
        assert word not in page
    assert "<b>" not in page
    assert "=ada()&lt;b&gt;" in page
