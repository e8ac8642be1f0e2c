"""Closed days take the place of the head's own measure."""

import json
from dataclasses import replace
from decimal import Decimal

import pytest

from slurmplugins.budget import take_closed_days
from slurmplugins.budgets import files
from slurmplugins.budgets.closed_days import parse, with_closed_days
from slurmplugins.budgets.meter import Allocation, InstanceTime, measure
from slurmplugins.errors import BadName
from tests.fakes.budgets import NOW, a_budget, a_config, a_memory

CONFIG = a_config(a_budget(projects=("imagenet",)))
TWO = Decimal(2)
MEMORY = a_memory(
    days={
        "vision": {"2026-11-24": Decimal(9), "2026-11-26": TWO},
        "gone": {"2026-11-24": Decimal(5)},
    },
    projects={"imagenet": {"vision": {"2026-11-25": Decimal(7)}}},
)
COSTS = [
    ["vision", "", "2026-11-24", "10.5"],
    ["vision", "ImageNet", "2026-11-25", "3"],
    ["vision", "other", "2026-11-25", "-0.5"],
    ["", "", "2026-11-25", "4"],
]


def text(**changes):
    return json.dumps({"first": "2026-11-01", "last": "2026-11-25", "costs": COSTS, **changes})


def test_closed_days_are_the_reports_and_later_days_the_heads():
    memory = with_closed_days(MEMORY, CONFIG, parse(text()))
    assert memory.days == {
        "vision": {
            "2026-11-24": Decimal("10.5"),
            "2026-11-25": Decimal("2.5"),
            "2026-11-26": TWO,
        },
        "gone": {},
    }
    assert memory.projects == {"imagenet": {"vision": {"2026-11-25": Decimal(3)}}}
    assert memory.nobody == {"2026-11-25": Decimal(4)}
    assert memory.closed_until == "2026-11-25"
    assert with_closed_days(memory, CONFIG, parse(text())) == memory


def test_a_pass_measures_no_day_again_that_a_report_has():
    """Measure a night across the end of the closed days."""
    memory = replace(with_closed_days(MEMORY, CONFIG, parse(text())), measured_until=NOW - 86_400)
    instance = InstanceTime("i-1", "gpu-001", NOW - 86_400, NOW, Decimal(1))
    job = Allocation("vision", ("gpu-001",), NOW - 86_400, NOW, Decimal(1), "imagenet")
    later = measure(memory, [instance], [job], NOW - 86_400, NOW)
    assert later.days["vision"]["2026-11-25"] == Decimal("2.5")
    assert later.days["vision"]["2026-11-26"] == 2 + 12
    assert later.projects["imagenet"]["vision"]["2026-11-26"] == 12


def test_the_audit_log_has_the_days_that_were_taken(tmp_path):
    files.save(tmp_path, MEMORY)
    config = replace(CONFIG, folder=str(tmp_path))
    take_closed_days(config, parse(text()), NOW)
    assert files.load(tmp_path).closed_until == "2026-11-25"
    (line,) = [json.loads(item) for item in (tmp_path / files.AUDIT).read_text().splitlines()]
    assert (line["event"], line["usd"]) == ("budget_days_closed", "17.00")


@pytest.mark.parametrize(
    "bad",
    [
        "{",
        "[]",
        text(first="soon"),
        text(last="2026-11-24"),
        text(costs=[["vision", "", "2026-11-24", "NaN"]]),
        text(costs=[["vision", "", "2026-11-24", "1e12"]]),
        text(costs=[["vision", "", "2026-11-24"]]),
        text(costs=[["vision", "", "2026-12-01", "1"]]),
        text(costs=None),
    ],
)
def test_what_is_no_closed_day_is_refused(bad):
    with pytest.raises(BadName):
        parse(bad)
