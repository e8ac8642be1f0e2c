"""slurm-backup takes the words that `toolkit backup` sends, and no others."""

from __future__ import annotations

import pytest

from slurmplugins.backup import Arguments, parse
from slurmplugins.errors import BadName

ID, SHA256 = "2026-11-25T22-20-00Z", "a" * 64


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["begun"], Arguments("begun")),
        (["take", "bak"], Arguments("take", bucket="bak")),
        (["take", "bak", "before-restore"], Arguments("take", "bak", word="before-restore")),
        (["check", ID, SHA256], Arguments("check", backup_id=ID, sha256=SHA256)),
        (["restore", ID, SHA256, "instead"], Arguments("restore", "", ID, SHA256, "instead")),
    ],
)
def test_the_words_of_the_toolkit_are_read(words: list[str], expected: Arguments):
    assert parse(words) == expected


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["begun", ID],
        ["take", "bak", "instead"],
        ["check", "latest", SHA256],
        ["restore", ID, SHA256, "before-restore"],
        ["restore", ID, SHA256, "instead", "instead"],
    ],
)
def test_other_words_are_refused(words: list[str]):
    with pytest.raises(BadName, match="unknown arguments"):
        parse(words)
