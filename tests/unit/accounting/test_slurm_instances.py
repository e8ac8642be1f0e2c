"""Slurm's own instance accounting, as evidence beside ledger and EC2."""

from decimal import Decimal

import pytest

from tests.unit.accounting.samples import T0, an_attempt, an_instance
from toolkit.accounting import instance_sources, slurm_instances
from toolkit.accounting.allocation import Window
from toolkit.accounting.cloudtrail import Trail, TrailEvent
from toolkit.accounting.disagreements import MOST_SENTENCES
from toolkit.accounting.instance_sources import JoinedInstances
from toolkit.accounting.lives import billed_lives
from toolkit.errors import ToolkitError

EXTRA = '{"lifecycle":"spot","az":"us-east-1a","price":"0.36"}'
DAY = 86_400


def line(**changes):
    values = {
        "Cluster": "demo",
        "NodeName": "gpu-001",
        "Start": str(T0),
        "End": str(T0 + 600),
        "InstanceId": "i-1",
        "InstanceType": "g5.xlarge",
        "Extra": EXTRA,
    }
    return "|".join((values | changes).values()) + "\n"


def parse(*lines):
    return slurm_instances.parse("".join(lines), "demo")


class Head:
    """A head node that answers, or refuses."""

    def __init__(self, answer) -> None:
        self.answer, self.calls = answer, []

    def run(self, argv, *, timeout=60):
        self.calls.append(argv)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def test_a_row_becomes_an_instance():
    (instance,) = parse(line()).instances
    assert (instance.instance_id, instance.node, instance.started) == ("i-1", "gpu-001", T0)
    assert (instance.ended, instance.spot, instance.zone) == (T0 + 600, True, "us-east-1a")
    assert instance.price == Decimal("0.36")


def test_a_node_that_is_up_has_no_end_and_a_node_without_an_instance_is_none():
    content = parse(line(End="Unknown"), line(InstanceId="", InstanceType=""))
    assert [item.ended for item in content.instances] == [None]
    assert content.set_aside == ()


@pytest.mark.parametrize(
    "extra", ["", "a|b|c", "{", "[]", "3", '{"lifecycle": 3, "az": [], "price": "NaN"}', "\u2028"]
)
def test_any_extra_is_the_rows_own(extra):
    (instance,) = parse(line(Extra=extra)).instances
    assert (instance.instance_id, instance.spot, instance.price) == ("i-1", False, None)


@pytest.mark.parametrize(
    "damage",
    [
        {"Cluster": "other"},
        {"NodeName": ""},
        {"NodeName": "a\tb"},
        {"Start": "Unknown"},
        {"Start": "1e9"},
        {"Start": "-5"},
        {"Start": "9" * 30},
        {"End": "soon"},
        {"End": str(T0 - 1)},
        {"InstanceId": "=1+1"},
        {"InstanceType": "[red]"},
    ],
)
def test_a_row_that_is_no_life_is_set_aside_and_hides_no_other(damage):
    content = parse(line(**damage), line(InstanceId="i-2"))
    assert [item.instance_id for item in content.instances] == ["i-2"]
    assert [item.name for item in content.set_aside] == ["row 1 of sacctmgr show instance"]


def test_a_line_break_in_extra_costs_no_known_instance_anything():
    content = parse(line(Extra="x\n" + line(InstanceId="i-1", End=str(T0 + 9 * DAY))))
    known = an_instance(ended=T0 + 600)
    joined = instance_sources.joined([known], content.instances)
    (life,) = billed_lives(joined.instances, [], T0 + 10 * DAY)
    assert life.ended == T0 + 600


def test_slurm_is_asked_for_more_than_the_window_and_never_with_an_end():
    head = Head(line())
    slurm_instances.read(head, "demo", T0)
    (argv,) = head.calls
    assert argv[:4] == ["env", "TZ=UTC", "SLURM_TIME_FORMAT=%s", "sacctmgr"]
    assert "start=2026-10-22T10:00:00" in argv
    assert "clusters=demo" in argv
    assert not [word for word in argv if word.startswith("end=")]


def test_a_head_that_does_not_answer_costs_no_report():
    content = slurm_instances.read(Head(ToolkitError("not a reader's command")), "demo", T0)
    assert content.instances == ()
    assert "not a reader's command" in content.set_aside[0].reason
    assert not content.set_aside[0].has_unknown_cost


def test_an_instance_that_slurm_alone_knows_and_that_never_ended_is_billed_to_its_last_evidence():
    (instance,) = instance_sources.joined([], parse(line(End="Unknown")).instances).instances
    attempt = an_attempt(started=T0 + 60, ended=T0 + 900)
    (life,) = billed_lives([instance], [attempt], T0 + 9 * DAY)
    assert (life.launched, life.ended) == (T0, T0 + 900)


def test_an_instance_that_slurm_alone_knows_is_a_windows_only_if_it_lived_in_it():
    rows = parse(line()).instances
    before, in_it = Window(T0 - DAY, T0), Window(T0 + 500, T0 + DAY)
    assert instance_sources.joined([], rows, window=before) == JoinedInstances(())
    joined = instance_sources.joined([], rows, window=in_it)
    assert [item.instance_id for item in joined.instances] == ["i-1"]
    assert len(joined.disagreements) == 1


@pytest.mark.parametrize(("extra", "is_guessed"), [(EXTRA, False), ("", True)])
def test_an_instance_without_extra_is_noted_as_on_demand(extra, is_guessed):
    joined = instance_sources.joined([], parse(line(Extra=extra)).instances)
    (sentence,) = joined.disagreements
    assert sentence.endswith("so it counts as On-Demand") is is_guessed


def test_cloudtrail_knows_the_end_of_an_instance_better_than_slurm_does():
    trail = Trail({"i-1": (TrailEvent(T0 + 480, "TerminateInstances"),)})
    rows = parse(line()).instances
    (exact,) = instance_sources.joined([], rows, trail=trail).instances
    assert (exact.ended, exact.end_seen) == (T0 + 480, True)
    (rough,) = instance_sources.joined([], rows, trail=Trail()).instances
    assert (rough.ended, rough.end_seen) == (T0 + 600, True)


@pytest.mark.parametrize(("second", "is_told"), [(T0 + 7200, True), (T0 + 480, False)])
def test_an_end_that_slurm_alone_and_cloudtrail_tell_differently_is_told(second, is_told):
    trail = Trail({"i-1": (TrailEvent(second, "TerminateInstances"),)})
    joined = instance_sources.joined([], parse(line()).instances, trail=trail)
    sentence = (
        "i-1: powered down 2026-11-21 10:10:00 by Slurm, ended 2026-11-21 12:00:00 by CloudTrail;"
        " billed to the latter"
    )
    assert (sentence in joined.disagreements) is is_told


def test_an_instance_that_was_two_nodes_is_one():
    rows = [line(End=str(T0 + 60)), line(NodeName="gpu-002", Start=str(T0 + 60))]
    (instance,) = instance_sources.joined([], parse(*rows).instances).instances
    assert (instance.node, instance.launched, instance.ended) == ("gpu-002", T0, T0 + 600)


@pytest.mark.parametrize(("state", "end"), [("COMPLETED", 1200), ("NODE_FAIL", 0)])
def test_a_power_down_is_the_last_evidence_unless_slurmctld_found_the_node_dead(state, end):
    instance = an_instance(ended=T0 + 3 * DAY, end_seen=False, powered_down=T0 + 1200)
    attempt = an_attempt(started=T0 + 60, ended=T0 + 900, state=state)
    (life,) = billed_lives([instance], [attempt], T0 + 9 * DAY)
    assert life.ended == T0 + end


def test_many_disagreements_are_counted():
    instances = [an_instance(f"i-{number}", instance_type="p5.48xlarge") for number in range(30)]
    rows = [line(InstanceId=f"i-{number}", End=str(T0 + 7200)) for number in range(30)]
    joined = instance_sources.joined(instances, parse(*rows).instances)
    assert len(joined.disagreements) == MOST_SENTENCES + 1
    assert joined.disagreements[-1] == "and 10 more of these"
