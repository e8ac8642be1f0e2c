"""docs/join-check.md names each finding, with its severity."""

from __future__ import annotations

import re
from pathlib import Path

from toolkit.join.preflight.checks import RULES
from toolkit.join.preflight.power import LINTED
from toolkit.lint.slurm_conf.check import ALWAYS, WITH_CLOUD_NODES

PAGE = Path(__file__).parents[3] / "docs" / "join-check.md"
ROW = re.compile(r"^\| `([a-z0-9-]+)` \| (error|warning) \|", re.MULTILINE)


def test_the_page_has_each_finding_once_with_its_severity():
    rows = ROW.findall(PAGE.read_text())
    severities = dict(rows)
    assert len(rows) == len(severities)
    linted = [rule for rule in (*ALWAYS, *WITH_CLOUD_NODES) if rule.slug in LINTED]
    assert severities == {rule.slug: str(rule.severity) for rule in (*RULES, *linted)}
