"""Slurm's own instance accounting, as three versions answered (capture.py)."""

import json
from fractions import Fraction
from pathlib import Path

import pytest

from tests.golden.captured_fields import asked
from tests.unit.accounting.samples import G5, a_book
from toolkit.accounting import instance_sources, sacct, slurm_instances
from toolkit.accounting.allocation import Window
from toolkit.accounting.build import build
from toolkit.accounting.charges import Component

HERE = Path(__file__).parent / "instances"
VERSIONS = ("24.11", "25.11", "26.05")
TOKEN = "0f1e2d3c4b5a69788796a5b4c3d2e1f0"
PAUSE = 15
LOSES_EXTRA = ("26.05",)  # what slurmd --extra tells, and not what scontrol sets
NO_EXTRA = (False, "", "None")
RATES = {True: 100, False: Fraction(1_006_000, 3600)}  # micro-dollars a second, Spot or not
FIRST, SECOND, HOSTILE = "i-0123456789abcdef0", "i-0fedcba9876543210", "i-0aaaabbbbccccdddd"


def captured(version, name):
    return (HERE / version / name).read_text(encoding="utf-8")


def content_of(version, name="sacctmgr-instance"):
    return slurm_instances.parse(captured(version, f"{name}.txt"), "demo")


def rows_of(version, name="sacctmgr-instance"):
    return {item.instance_id: item for item in content_of(version, name).instances}


def attempts_of(version):
    """Return the attempts by capture.py's names."""
    fields = asked(captured(version, "sacct-helpformat.txt"))
    content = sacct.parse(captured(version, "sacct.txt"), fields, TOKEN, cluster="demo")
    numbers = json.loads(captured(version, "jobs.json"))
    names = {str(number): name for name, number in numbers.items()}
    return {names[attempt.job]: attempt for attempt in content.attempts}


@pytest.mark.parametrize("version", VERSIONS)
def test_the_answers_are_of_that_version_and_no_call_failed(version):
    assert f" {version}." in captured(version, "version.txt")
    calls = json.loads(captured(version, "calls.json"))
    assert {call["exit"] for call in calls.values()} == {0}


@pytest.mark.parametrize("version", VERSIONS)
def test_the_captured_call_is_the_one_that_a_report_makes(version):
    argv = json.loads(captured(version, "calls.json"))["sacctmgr-instance.txt"]["argv"]
    today = slurm_instances.argv("demo", 0)
    assert [word for word in argv if not word.startswith("start=")] == [
        word for word in today if not word.startswith("start=")
    ]


@pytest.mark.parametrize("version", VERSIONS)
def test_the_columns_are_named_in_the_order_in_which_they_are_read(version):
    head, *_ = captured(version, "sacctmgr-instance-default.txt").splitlines()
    assert head == "Cluster|NodeName|TimeStart|TimeEnd|InstanceId|InstanceType|Extra|"


@pytest.mark.parametrize("version", VERSIONS)
def test_both_instances_of_a_node_are_read_alike(version):
    rows = rows_of(version)
    lives = (rows[FIRST], rows[SECOND])
    assert {(item.node, item.instance_type) for item in lives} == {("gpu-001", "g5.xlarge")}
    facts = {(item.spot, item.zone, str(item.price)) for item in lives}
    assert facts == {NO_EXTRA if version in LOSES_EXTRA else (True, "us-east-1a", "0.4024")}
    assert rows[FIRST].started < rows[FIRST].ended <= rows[SECOND].started
    assert rows[SECOND].ended is None


@pytest.mark.parametrize("version", VERSIONS)
def test_a_node_without_an_instance_has_a_row_that_is_no_instance(version):
    text = captured(version, "sacctmgr-instance.txt")
    assert "demo|gpu-003|" in text  # it powers up
    assert "demo|gpu-004|" in text  # it was drained while powered down
    assert {item.node for item in content_of(version).instances} == {"gpu-001", "gpu-002"}


@pytest.mark.parametrize("version", VERSIONS)
def test_an_extra_with_bar_and_line_break_costs_its_second_line_alone(version):
    content = content_of(version)
    hostile = rows_of(version)[HOSTILE]
    assert (hostile.node, hostile.ended, hostile.price) == ("gpu-002", None, None)
    assert set(rows_of(version)) == {FIRST, SECOND, HOSTILE}
    assert [item.name for item in content.set_aside] == ["row 4 of sacctmgr show instance"]


@pytest.mark.parametrize("version", VERSIONS)
def test_start_selects_by_the_start_alone_in_the_callers_time_zone(version):
    assert set(rows_of(version, "sacctmgr-instance-at-start")) == {FIRST, SECOND, HOSTILE}
    assert set(rows_of(version, "sacctmgr-instance-behind-start")) == {SECOND, HOSTILE}
    assert FIRST in captured(version, "sacctmgr-instance-tokyo.txt")  # nine hours earlier


@pytest.mark.parametrize("version", VERSIONS)
def test_an_end_would_make_an_ended_instance_run_on(version):
    rows = rows_of(version, "sacctmgr-instance-end")
    assert SECOND not in rows
    assert rows[FIRST].ended is None


@pytest.mark.parametrize("version", VERSIONS)
def test_a_suspended_jobs_start_and_end_have_its_pause_between_them(version):
    attempt = attempts_of(version)["suspended"]
    assert attempt.state == "COMPLETED"
    assert attempt.ended - attempt.started >= PAUSE - 1
    (row,) = [
        line.split("|")
        for line in captured(version, "sacct-elapsed.txt").splitlines()
        if line.startswith(f"{attempt.job}|")
    ]
    _, start, end, elapsed, suspended = row
    assert (int(start), int(end)) == (attempt.started, attempt.ended)
    assert int(elapsed) < attempt.ended - attempt.started
    assert suspended != "00:00:00"


@pytest.mark.parametrize("version", VERSIONS)
def test_a_report_of_slurms_accounting_alone_has_every_second_of_it(version):
    attempts, rows = attempts_of(version), rows_of(version)
    joined = instance_sources.joined([], rows.values())
    until = attempts["second"].started + 60
    report = build(
        cluster="demo",
        attempts=list(attempts.values()),
        instances=joined.instances,
        shapes=dict.fromkeys(rows, G5),
        book=a_book(),
        window=Window(rows[FIRST].started, until),
        now=until,
        disagreements=joined.disagreements,
    )
    first = next(cost for cost in report.costs if cost.instance_id == FIRST)
    seconds = rows[FIRST].ended - rows[FIRST].started
    assert first.gross == round(seconds * RATES[rows[FIRST].spot])
    owners = {charge.attempt for charge in first.charges} - {None}
    assert owners == {attempts["first"].key, attempts["suspended"].key}
    assert Component.IDLE_TAIL in {charge.component for charge in first.charges}
    assert sum("known to Slurm alone" in note for note in report.notes) == 3
