"""The table of reconcile: states of node and instances, and the actions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from slurmplugins.config import burst as burst_config
from slurmplugins.config.burst import MISSING_INSTANCE_GRACE
from slurmplugins.model import hostlist
from slurmplugins.model.actions import (
    Drain,
    MarkDown,
    PowerDown,
    PowerUp,
    Register,
    RequestStop,
    ReturnToService,
    Terminate,
)
from slurmplugins.model.instance import (
    Assignment,
    EndCause,
    Instance,
    InstanceHealth,
    InstanceState,
    Lifecycle,
    ScheduledEvent,
)
from slurmplugins.model.node import Node
from slurmplugins.reconciler import rules, snapshot
from slurmplugins.reconciler.snapshot import RegistrationRequests
from slurmplugins.state.journal_view import JournalView
from tests.fakes.engine import burst

NOW = 1_795_000_000.0
CONFIG = burst_config.parse(burst())
NODE = hostlist.parse("gpu-001")
S = InstanceState
TAKEN = "Server.SpotInstanceTermination"


def instance(state: InstanceState = S.RUNNING, *, age: float = 600, **more: Any) -> Instance:
    base = Instance(
        id="i-1",
        state=state,
        role="compute",
        node=NODE,
        pool="gpu",
        partition="spot",
        attempt="a",
        type="g5.xlarge",
        zone="us-east-1a",
        lifecycle=Lifecycle.SPOT,
        address="10.42.1.11",
        price="0.4",
        launched_at=NOW - age,
    )
    return replace(base, **more)


def a_snapshot(
    flags: str, *instances: Instance, reason: str = "", **more: Any
) -> snapshot.Snapshot:
    nodes = {
        name: Node(name, frozenset({"IDLE", "CLOUD", "POWERED_DOWN"}))
        for name in CONFIG.pool_by_node
    }
    nodes[NODE] = Node(
        NODE, frozenset(flags.split("+")), reason, more.pop("instance_id", "i-1"), "10.42.1.11"
    )
    given: dict[str, Any] = {"journal": JournalView(), "now": NOW, **more}
    return snapshot.Snapshot(config=CONFIG, instances=instances, nodes=nodes, **given)


WORDS: dict[type, str] = {
    MarkDown: "down",
    Drain: "drain",
    RequestStop: "ask",
    Register: "register",
    PowerDown: "power-down",
    ReturnToService: "reopen",
    PowerUp: "power-up",
}


def told(found: snapshot.Plan) -> list[str]:
    """Return the actions of the plan as short texts."""
    return [
        f"end {item.instance.id}:{item.cause}"
        if isinstance(item, Terminate)
        else f"{WORDS[type(item)]} {item.reason}"
        if isinstance(item, MarkDown | Drain | RequestStop)
        else WORDS[type(item)]
        for item in found.actions
    ]


def sick(**trouble: Any) -> dict[str, InstanceHealth]:
    return {"i-1": InstanceHealth("i-1", **trouble)}


def retires(seconds: float) -> dict[str, InstanceHealth]:
    return sick(events=(ScheduledEvent("instance-retirement", NOW + seconds),))


def static(flags: str, *instances: Instance, **more: Any) -> snapshot.Snapshot:
    given = a_snapshot(flags, *instances, **more)
    return replace(given, config=replace(CONFIG, static_nodes=frozenset({NODE})))


TAKEN_INSTANCE = instance(S.TERMINATED, end_code=TAKEN)
LOST = ["down toolkit: interrupted (Server.SpotInstanceTermination)", "power-down"]
LONG_AGO = {NODE: NOW - MISSING_INSTANCE_GRACE}
TABLE: dict[str, tuple[snapshot.Snapshot, list[str]]] = {
    # Slurm has powered the node down
    "powered down, no instance": (a_snapshot("IDLE+POWERED_DOWN"), []),
    "powered down, drained by us before no pass saw it power down": (
        a_snapshot("IDLE+DRAIN+POWERED_DOWN", reason="toolkit: spot interruption"),
        ["reopen"],
    ),
    "powered down, drained by an admin": (
        a_snapshot("IDLE+DRAIN+POWERED_DOWN", reason="flood"),
        [],
    ),
    "powered down, old instance": (a_snapshot("IDLE+POWERED_DOWN", instance()), ["end i-1:orphan"]),
    "powered down, young instance": (a_snapshot("IDLE+POWERED_DOWN", instance(age=30)), []),
    "powered down, instance ending": (
        a_snapshot("IDLE+POWERED_DOWN", instance(S.SHUTTING_DOWN)),
        [],
    ),
    "powering down, instance lives": (
        a_snapshot("IDLE+POWERING_DOWN", instance()),
        ["end i-1:suspend"],
    ),
    "powering down, instance ending": (
        a_snapshot("IDLE+POWERING_DOWN", instance(S.SHUTTING_DOWN)),
        [],
    ),
    "powering down after a spot notice": (
        a_snapshot("IDLE+DRAIN+POWERING_DOWN", instance(), reason="toolkit: spot interruption"),
        ["end i-1:notice"],
    ),
    "powering down, instance ended": (a_snapshot("IDLE+POWERING_DOWN", TAKEN_INSTANCE), ["reopen"]),
    "powering down, no instance": (a_snapshot("IDLE+POWERING_DOWN"), ["reopen"]),
    "powering down, drained by an admin": (
        a_snapshot("IDLE+DRAIN+POWERING_DOWN", reason="bad disk"),
        [],
    ),
    "powering down, drained by us": (
        a_snapshot("IDLE+DRAIN+POWERING_DOWN", reason="toolkit: spot interruption"),
        ["reopen"],
    ),
    "timed out, no instance": (
        a_snapshot("DOWN+POWERED_DOWN", reason="ResumeTimeout reached"),
        ["reopen"],
    ),
    "timed out, instance lives": (
        a_snapshot("DOWN+POWERED_DOWN", instance(age=10), reason="x : ResumeTimeout reached"),
        ["end i-1:boot-failed"],
    ),
    "timed out and up again, instance lives": (
        a_snapshot("IDLE+POWERED_DOWN", instance(age=10), reason="ResumeTimeout reached"),
        ["end i-1:orphan"],
    ),
    "given back and powered down, instance lives": (
        a_snapshot("DOWN+POWERED_DOWN", instance(), reason="toolkit: no-capacity"),
        ["end i-1:orphan"],
    ),
    "down and powered down by an admin": (a_snapshot("DOWN+POWERED_DOWN", reason="flood"), []),
    "given back and powered down, no instance": (
        a_snapshot("DOWN+POWERED_DOWN", reason="toolkit: no-capacity"),
        ["reopen"],
    ),
    "given back and powered down, instance ending": (
        a_snapshot("DOWN+POWERED_DOWN", instance(S.SHUTTING_DOWN), reason="toolkit: no-capacity"),
        [],
    ),
    "powering down and down, no instance": (
        a_snapshot("DOWN+POWERING_DOWN", reason="toolkit: interrupted"),
        ["reopen"],
    ),
    "powering down, wanted again, instance lives": (
        a_snapshot("IDLE+POWERING_DOWN+POWER_UP", instance()),
        ["end i-1:suspend"],
    ),
    "powering down, wanted again, instance ended": (
        a_snapshot("IDLE+POWERING_DOWN+POWER_UP", TAKEN_INSTANCE),
        ["reopen"],
    ),
    "powered down, instance stopped": (
        a_snapshot("IDLE+POWERED_DOWN", instance(S.STOPPED)),
        ["end i-1:unknown"],
    ),
    "powered down, instance stopping": (
        a_snapshot("IDLE+POWERED_DOWN", instance(S.STOPPING)),
        ["end i-1:unknown"],
    ),
    "powered down, instance stopped, its end decided before": (
        a_snapshot(
            "IDLE+POWERED_DOWN",
            instance(S.STOPPED),
            journal=JournalView(termination_causes={"i-1": EndCause.SUSPEND}),
        ),
        ["end i-1:suspend"],
    ),
    "powered down, power-up asked, old instance": (
        a_snapshot("ALLOCATED+POWERED_DOWN+POWER_UP", instance()),
        ["end i-1:orphan"],
    ),
    # Slurm wants the node up
    "up and backed": (a_snapshot("ALLOCATED", instance()), []),
    "up and starting": (a_snapshot("ALLOCATED+POWERING_UP", instance(S.PENDING, age=5)), []),
    "starting for longer than a healthy one takes, slurmd silent": (
        a_snapshot("ALLOCATED+POWERING_UP+NOT_RESPONDING", instance(age=46)),
        ["register"],
    ),
    "starting for exactly as long as a healthy one takes, slurmd silent": (
        a_snapshot("ALLOCATED+POWERING_UP+NOT_RESPONDING", instance(age=45)),
        ["register"],
    ),
    "starting, slurmd silent": (
        a_snapshot("ALLOCATED+POWERING_UP+NOT_RESPONDING", instance(age=44)),
        [],
    ),
    "a job on it, powered down, instance lives": (
        a_snapshot("ALLOCATED+POWERED_DOWN", instance()),
        ["register"],
    ),
    "the same, and a person has drained it": (
        a_snapshot("ALLOCATED+DRAIN+POWERED_DOWN", instance(), reason="flood"),
        ["register"],
    ),
    "the same, and nothing came of that for ResumeTimeout": (
        a_snapshot(
            "ALLOCATED+DRAIN+POWERED_DOWN",
            instance(),
            reason="flood",
            registration_requests={NODE: RegistrationRequests(NOW - 180, NOW - 60)},
        ),
        [],
    ),
    "a job on it, powered down, instance lives, asked for ResumeTimeout": (
        a_snapshot(
            "ALLOCATED+POWERED_DOWN",
            instance(),
            registration_requests={NODE: RegistrationRequests(NOW - 180, NOW - 60)},
        ),
        ["down toolkit: never-registered"],
    ),
    "a job on it, powered down, no instance": (a_snapshot("ALLOCATED+POWERED_DOWN"), []),
    "up, instance taken": (a_snapshot("ALLOCATED", TAKEN_INSTANCE), LOST),
    "up, instance being taken": (
        a_snapshot("ALLOCATED", instance(S.SHUTTING_DOWN, end_code=TAKEN)),
        LOST,
    ),
    "drained by us, instance taken": (
        a_snapshot("ALLOCATED+DRAIN", TAKEN_INSTANCE, reason="toolkit: spot interruption"),
        LOST,
    ),
    "drained by us, told to power down, instance taken": (
        a_snapshot(
            "ALLOCATED+DRAIN+POWER_DOWN", TAKEN_INSTANCE, reason="toolkit: spot interruption"
        ),
        LOST[:1],
    ),
    "drained by an admin, instance taken": (
        a_snapshot("ALLOCATED+DRAIN", TAKEN_INSTANCE, reason="testing"),
        [],
    ),
    "up, instance ended by someone": (
        a_snapshot("IDLE", instance(S.TERMINATED, end_code="Client.UserInitiatedShutdown")),
        ["down toolkit: machine-ended (Client.UserInitiatedShutdown)", "power-down"],
    ),
    "up, instance powered itself off": (
        a_snapshot("IDLE", instance(S.STOPPED)),
        ["end i-1:unknown", "down toolkit: machine-ended", "power-down"],
    ),
    "powering up, its own instance died": (
        a_snapshot("ALLOCATED+POWERING_UP", TAKEN_INSTANCE),
        LOST,
    ),
    "powering up, an earlier instance died": (
        a_snapshot("ALLOCATED+POWERING_UP", TAKEN_INSTANCE, instance_id=""),
        [],
    ),
    "up, no instance seen for the first time": (a_snapshot("IDLE"), []),
    "up, no instance listed for long": (
        a_snapshot("ALLOCATED", without_instance_since=LONG_AGO),
        [],
    ),
    "silent, no instance for long": (
        a_snapshot("ALLOCATED+NOT_RESPONDING", without_instance_since=LONG_AGO),
        ["down toolkit: no-machine", "power-down"],
    ),
    "silent, no instance for less than the grace": (
        a_snapshot(
            "ALLOCATED+NOT_RESPONDING",
            without_instance_since={NODE: NOW - MISSING_INSTANCE_GRACE + 1},
        ),
        [],
    ),
    "powering up, no instance for long": (
        a_snapshot("ALLOCATED+POWERING_UP", without_instance_since=LONG_AGO),
        ["down toolkit: no-machine", "power-down"],
    ),
    "fell silent, no instance for long": (
        a_snapshot("DOWN", reason="Not responding", without_instance_since=LONG_AGO),
        ["power-down"],
    ),
    "completing, silent, no instance for long": (
        a_snapshot("IDLE+COMPLETING+NOT_RESPONDING", without_instance_since=LONG_AGO),
        ["down toolkit: no-machine", "power-down"],
    ),
    "reserved and planned, silent, no instance for long": (
        a_snapshot(
            "IDLE+RESERVED+PLANNED+MAINTENANCE+NOT_RESPONDING", without_instance_since=LONG_AGO
        ),
        ["down toolkit: no-machine", "power-down"],
    ),
    "of unknown state since slurmctld started, no instance for long": (
        a_snapshot("UNKNOWN+CLOUD", without_instance_since=LONG_AGO),
        ["down toolkit: no-machine", "power-down"],
    ),
    "failing, silent, no instance for long": (
        a_snapshot("IDLE+FAIL+NOT_RESPONDING", without_instance_since=LONG_AGO),
        ["down toolkit: no-machine", "power-down"],
    ),
    "downed by an admin, no instance": (
        a_snapshot("DOWN", reason="flood", without_instance_since=LONG_AGO),
        [],
    ),
    "given back, resume died in between": (
        a_snapshot("DOWN+POWERING_UP", instance(), reason="toolkit: no-capacity"),
        ["power-down"],
    ),
    "given back, powering down asked": (
        a_snapshot("DOWN+POWER_DOWN", instance(), reason="toolkit: no-capacity"),
        [],
    ),
    "drained by us, jobs still there": (
        a_snapshot("ALLOCATED+DRAIN", instance(), reason="toolkit: spot interruption"),
        ["power-down"],
    ),
    "drained by us, idle": (
        a_snapshot("IDLE+DRAIN", instance(), reason="toolkit: spot interruption"),
        ["power-down"],
    ),
    "drained by us, power down asked": (
        a_snapshot("IDLE+DRAIN+POWER_DOWN", instance(), reason="toolkit: spot interruption"),
        [],
    ),
    "drained by us while it booted": (
        a_snapshot("IDLE+DRAIN+POWERING_UP", instance(age=60), reason="toolkit: spot interruption"),
        [],
    ),
    "drained by an admin": (a_snapshot("IDLE+DRAIN", instance(), reason="bad disk"), []),
    # A person reboots the node: Slurm sets a reason of its own, or none
    "told to reboot when idle": (a_snapshot("ALLOCATED+REBOOT_REQUESTED", instance()), []),
    "told to reboot now": (
        a_snapshot("IDLE+DRAIN+REBOOT_REQUESTED", instance(), reason="Reboot ASAP"),
        [],
    ),
    "rebooting": (
        a_snapshot("DOWN+REBOOT_ISSUED", instance(), reason="Reboot ASAP : reboot issued"),
        [],
    ),
    "rebooting and silent": (a_snapshot("IDLE+NOT_RESPONDING+REBOOT_ISSUED", instance()), []),
    "rebooting, its instance taken": (a_snapshot("ALLOCATED+REBOOT_ISSUED", TAKEN_INSTANCE), LOST),
    "did not come back from a reboot": (  # Slurm powers it down after SuspendTime.
        a_snapshot("DOWN", instance(), reason="reboot timed out"),
        [],
    ),
    "drained by slurmd itself": (
        a_snapshot("IDLE+DRAIN", instance(), reason="Kill task failed"),
        [],
    ),
    "two instances": (
        a_snapshot("ALLOCATED", instance(age=900, id="i-0", address="10.42.1.9"), instance()),
        ["end i-0:orphan"],
    ),
    "two instances, Slurm knows the address of one": (
        a_snapshot(
            "ALLOCATED",
            instance(age=900, id="i-0", address="10.42.1.9"),
            instance(age=5),
            instance_id="",
        ),
        ["end i-0:orphan"],
    ),
    "two instances, Slurm knows neither": (
        a_snapshot("ALLOCATED+POWERING_UP", instance(age=5, id="i-2", address=""), instance(age=9)),
        ["end i-2:orphan"],
    ),
    # The node boots, and does not register
    "pending for half of ResumeTimeout": (
        a_snapshot("ALLOCATED+POWERING_UP", instance(S.PENDING, age=91)),
        ["end i-1:boot-failed", "down toolkit: never-booted", "power-down"],
    ),
    "pending for less": (a_snapshot("ALLOCATED+POWERING_UP", instance(S.PENDING, age=89)), []),
    "boots, and never registers": (
        a_snapshot("ALLOCATED+POWERING_UP", instance(age=241)),
        ["end i-1:boot-failed", "down toolkit: never-registered", "power-down"],
    ),
    "boots, and Slurm has yet to lose patience": (
        a_snapshot("ALLOCATED+POWERING_UP", instance(age=239)),
        [],
    ),
    "boots, and an admin holds the node": (
        a_snapshot("IDLE+DRAIN+POWERING_UP", instance(age=900), reason="looking at it"),
        [],
    ),
    "impaired while it boots": (
        a_snapshot(
            "ALLOCATED+POWERING_UP", instance(age=200), health=sick(impaired_since=NOW - 180)
        ),
        ["end i-1:boot-failed", "down toolkit: impaired", "power-down"],
    ),
    "registers as something else": (
        a_snapshot("IDLE+DRAIN+INVALID_REG", instance(), reason="Low RealMemory (reported:1 < 2)"),
        ["end i-1:boot-failed", "down toolkit: invalid-registration", "power-down"],
    ),
    "registers as something else, and slurmctld has set it down": (
        a_snapshot("DOWN+INVALID_REG", instance(), reason="Low RealMemory (reported:1 < 2)"),
        ["end i-1:boot-failed", "down toolkit: invalid-registration", "power-down"],
    ),
    "registers as something else, and has a job": (
        a_snapshot("ALLOCATED+DRAIN+INVALID_REG", instance(), reason="Low RealMemory"),
        [],
    ),
    "dies while it boots": (
        a_snapshot(
            "ALLOCATED+POWERING_UP", instance(S.TERMINATED, end_code="Client.InternalError")
        ),
        ["down toolkit: machine-ended (Client.InternalError)", "power-down"],
    ),
    # The node is up, and EC2 has news of its instance
    "spot notice": (
        a_snapshot("ALLOCATED", instance(), health=sick(notice=True)),
        ["drain toolkit: spot interruption, noticed by the head node"],
    ),
    "spot notice, and a pass later nothing from the node agent": (
        a_snapshot(
            "ALLOCATED+DRAIN",
            instance(),
            health=sick(notice=True),
            reason="toolkit: spot interruption, noticed by the head node",
        ),
        ["ask toolkit: spot interruption, its jobs asked to stop by the head node"],
    ),
    "the same, and no job is there": (
        a_snapshot(
            "IDLE+DRAIN",
            instance(),
            health=sick(notice=True),
            reason="toolkit: spot interruption, noticed by the head node",
        ),
        ["power-down"],
    ),
    "spot notice, its jobs asked from the head": (
        a_snapshot(
            "ALLOCATED+DRAIN",
            instance(),
            health=sick(notice=True),
            reason="toolkit: spot interruption, its jobs asked to stop by the head node",
        ),
        ["power-down"],
    ),
    "spot notice, the node agent was first": (
        a_snapshot(
            "ALLOCATED+DRAIN+POWER_DOWN",
            instance(),
            health=sick(notice=True),
            reason="toolkit: spot interruption",
        ),
        [],
    ),
    "spot notice while it boots": (
        a_snapshot("ALLOCATED+POWERING_UP", instance(age=60), health=sick(notice=True)),
        [],
    ),
    "spot notice on an admin's node": (
        a_snapshot("IDLE+DRAIN", instance(), health=sick(notice=True), reason="bad disk"),
        [],
    ),
    "retires in a week, idle": (
        a_snapshot("IDLE", instance(), health=retires(7 * 86_400)),
        ["drain toolkit: scheduled instance-retirement"],
    ),
    "retires in a week, busy": (
        a_snapshot("ALLOCATED", instance(), health=retires(7 * 86_400)),
        [],
    ),
    "retires tomorrow, busy": (
        a_snapshot("MIXED", instance(), health=retires(86_400)),
        ["drain toolkit: scheduled instance-retirement"],
    ),
    "retires tomorrow, drained for it": (
        a_snapshot(
            "IDLE+DRAIN",
            instance(),
            health=retires(86_400),
            reason="toolkit: scheduled instance-retirement",
        ),
        ["power-down"],
    ),
    "retires tomorrow, an admin's": (
        a_snapshot("IDLE+DRAIN", instance(), health=retires(86_400), reason="x"),
        [],
    ),
    "impaired for a moment": (
        a_snapshot("ALLOCATED", instance(), health=sick(impaired_since=NOW - 179)),
        [],
    ),
    "impaired, and slurmd answers": (
        a_snapshot("ALLOCATED", instance(), health=sick(impaired_since=NOW - 180)),
        ["drain toolkit: impaired"],
    ),
    "impaired and silent": (
        a_snapshot("ALLOCATED+NOT_RESPONDING", instance(), health=sick(impaired_since=NOW - 180)),
        ["down toolkit: impaired", "power-down"],
    ),
    "impaired and silent, drained by an admin": (
        a_snapshot(
            "IDLE+DRAIN+NOT_RESPONDING",
            instance(),
            health=sick(impaired_since=NOW - 180),
            reason="flood",
        ),
        [],
    ),
    "impaired and silent, drained by us": (
        a_snapshot(
            "ALLOCATED+DRAIN+NOT_RESPONDING",
            instance(),
            health=sick(impaired_since=NOW - 180),
            reason="toolkit: spot interruption",
        ),
        ["down toolkit: impaired", "power-down"],
    ),
    "spot notice, given back": (
        a_snapshot("DOWN", instance(), health=sick(notice=True), reason="toolkit: no-capacity"),
        ["power-down"],
    ),
    "spot notice, power down asked": (
        a_snapshot("ALLOCATED+POWER_DOWN", instance(), health=sick(notice=True)),
        [],
    ),
    "impaired, Slurm has let go": (
        a_snapshot("IDLE+POWERED_DOWN", instance(age=30), health=sick(impaired_since=0)),
        [],
    ),
    "fell silent, instance lives": (
        a_snapshot("DOWN+NOT_RESPONDING", instance(), reason="Not responding"),
        ["power-down"],
    ),
    "fell silent, powering down asked": (
        a_snapshot("DOWN+POWER_DOWN", instance(), reason="Not responding"),
        [],
    ),
    "silent for less than SlurmdTimeout": (a_snapshot("IDLE+NOT_RESPONDING", instance()), []),
    "downed by an admin, instance lives": (a_snapshot("DOWN", instance(), reason="flood"), []),
    # Tags
    "tags of another pool, not in use": (
        a_snapshot("IDLE", instance(), instance(id="i-2", pool="cpu")),
        ["end i-2:orphan"],
    ),
    "tags of another pool, young": (
        a_snapshot("IDLE", instance(), instance(id="i-2", pool="cpu", age=5)),
        [],
    ),
    "tags of another pool, and Slurm uses it": (a_snapshot("IDLE", instance(pool="cpu")), []),
    "tags of no role": (a_snapshot("IDLE", instance(), instance(id="i-2", role="")), []),
    # Static nodes
    "static, powered down": (static("IDLE+POWERED_DOWN"), ["power-up"]),
    "static, powered up": (static("IDLE", instance()), []),
    "static, waking": (static("IDLE+POWERED_DOWN+POWER_UP"), []),
    "static, tried a minute ago": (static("IDLE+POWERED_DOWN", last_power_up={NODE: NOW - 60}), []),
    "static, tried five minutes ago": (
        static("IDLE+POWERED_DOWN", last_power_up={NODE: NOW - 300}),
        ["power-up"],
    ),
    "static, drained by an admin": (static("IDLE+DRAIN+POWERED_DOWN", reason="bad disk"), []),
    "static, did not come up": (
        static("DOWN+POWERED_DOWN", reason="ResumeTimeout reached"),
        ["reopen"],
    ),
    "static, powering down, no instance": (static("IDLE+POWERING_DOWN"), ["reopen"]),
    "static, given back": (
        static("DOWN+POWERED_DOWN", reason="toolkit: no-capacity"),
        ["reopen"],
    ),
    "static, its instance still ending": (
        static("IDLE+POWERED_DOWN", instance(S.SHUTTING_DOWN)),
        [],
    ),
    # Facts from the journal
    "a run is at it": (
        a_snapshot(
            "ALLOCATED+POWERING_UP",
            instance(age=900, id="i-0"),
            instance(),
            journal=JournalView(claimed_nodes=frozenset({NODE})),
        ),
        [],
    ),
    "just launched, not listed": (
        a_snapshot(
            "ALLOCATED+POWERING_UP",
            without_instance_since=LONG_AGO,
            journal=JournalView(
                recent_launches={"i-9": Assignment(NODE, "i-9", "10.42.1.9", "g5.xlarge")}
            ),
        ),
        [],
    ),
    "powering down, launched and not listed": (
        a_snapshot(
            "IDLE+POWERING_DOWN",
            journal=JournalView(
                recent_launches={"i-9": Assignment(NODE, "i-9", "10.42.1.9", "g5.xlarge")}
            ),
        ),
        [],
    ),
    "marked to terminate and alive": (
        a_snapshot(
            "IDLE+POWERED_DOWN",
            instance(),
            journal=JournalView(termination_causes={"i-1": EndCause.SUSPEND}),
        ),
        ["end i-1:suspend"],
    ),
    # Instances without a node
    "no such node, old": (
        a_snapshot("IDLE", instance(), instance(id="i-2", node=hostlist.parse("gone-1"))),
        ["end i-2:orphan"],
    ),
    "no such node, young": (
        a_snapshot("IDLE", instance(), instance(id="i-2", node=hostlist.parse("gone-1"), age=5)),
        [],
    ),
    "tags that can't be read, old": (
        a_snapshot("IDLE", instance(), instance(id="i-2", node=None)),
        ["end i-2:orphan"],
    ),
    "of a fleet that its run is about to name": (
        a_snapshot(
            "IDLE",
            instance(),
            instance(id="i-2", node=None, attempt="f1"),
            journal=JournalView(awaiting_reply=frozenset({"f1"})),
        ),
        [],
    ),
    "the head": (a_snapshot("IDLE", instance(), instance(id="i-h", role="head", node=None)), []),
    "a builder": (
        a_snapshot("IDLE", instance(), instance(id="i-b", role="builder", node=None)),
        [],
    ),
}


@pytest.mark.parametrize("name", TABLE)
def test_each_state_of_a_node_and_its_instances_has_the_actions_of_the_table(name: str):
    """Compare the actions of the plan with those of the table."""
    given, expected = TABLE[name]
    assert told(rules.plan(given)) == expected


def test_nodes_that_burst_json_does_not_name_are_never_touched():
    given = a_snapshot("IDLE", instance())
    nodes = {**given.nodes, "onprem-1": Node("onprem-1", frozenset({"DOWN"}), "toolkit: x")}
    assert rules.plan(replace(given, nodes=nodes)).actions == ()


def test_an_instance_of_a_node_slurm_knows_and_we_do_not_is_left_alone():
    stranger = hostlist.parse("onprem-1")
    given = a_snapshot("IDLE", instance(), instance(id="i-2", node=stranger))
    nodes = {**given.nodes, stranger: Node(stranger, frozenset({"IDLE"}))}
    assert rules.plan(replace(given, nodes=nodes)).actions == ()


def test_a_slurm_that_lists_too_few_nodes_is_not_believed():
    given = replace(a_snapshot("IDLE+POWERED_DOWN", instance()), nodes={})
    found = rules.plan(given)
    assert found.actions == ()
    assert "not trusted" in found.blocked_by


def test_a_node_whose_instance_ec2_lists_as_terminated_gets_no_warning_of_a_missing_one():
    given = a_snapshot("ALLOCATED+DRAIN", TAKEN_INSTANCE, reason="flood")
    assert rules.plan(replace(given, without_instance_since=LONG_AGO)).warnings == ()


def test_a_node_that_answers_without_a_listed_instance_gets_a_warning():
    given = a_snapshot("ALLOCATED", without_instance_since=LONG_AGO)
    said = (f"node {NODE} responds, but EC2 lists no instance for it",)
    assert rules.plan(given).warnings == said
    assert rules.plan(replace(given, without_instance_since={})).warnings == ()


def test_how_long_a_node_has_no_instance_is_remembered_and_forgotten():
    first = rules.plan(a_snapshot("IDLE"))
    assert first.without_instance_since == {NODE: NOW}
    later = rules.plan(
        a_snapshot("IDLE", without_instance_since=first.without_instance_since, now=NOW + 30)
    )
    assert later.without_instance_since == {NODE: NOW}
    backed = rules.plan(
        a_snapshot("IDLE", instance(), without_instance_since=later.without_instance_since)
    )
    assert backed.without_instance_since == {}


def fleet(size: int, **more: Any) -> snapshot.Snapshot:
    """Make a snapshot of `size` nodes, each up with an instance."""
    names_ = list(CONFIG.pool_by_node)[:size]
    found = a_snapshot("IDLE", **more)
    instances = tuple(
        instance(id=f"i-{name}", node=name, pool=CONFIG.pool_by_node[name]) for name in names_
    )
    up = {name: Node(name, frozenset({"IDLE", "CLOUD"}), "", f"i-{name}") for name in names_}
    return replace(found, instances=instances, nodes={**found.nodes, **up})


def test_an_ec2_that_lists_nothing_while_instances_answer_is_not_believed():
    found = rules.plan(replace(fleet(4), instances=()))
    assert found.actions == ()
    assert not found.cloud_believed
    assert "EC2 does not list 4 of 4" in found.blocked_by


def test_an_ec2_that_forgets_most_instances_of_the_last_pass_is_not_believed():
    known = frozenset({"i-a", "i-b", "i-c", "i-d"})
    off = replace(fleet(0), instances=(instance(id="i-a", node=None),), known_instances=known)
    found = rules.plan(off)
    assert (found.actions, found.cloud_believed) == ((), False)


def test_losing_half_of_the_instances_is_believed():
    given = fleet(6)
    found = rules.plan(replace(given, instances=given.instances[:3]))
    assert found.cloud_believed
    assert len(found.without_instance_since) == 3


def test_instances_that_ended_are_no_reason_to_doubt():
    given = fleet(6)
    ended = tuple(replace(item, state=S.TERMINATED, end_code=TAKEN) for item in given.instances)
    found = rules.plan(replace(given, instances=ended))
    assert found.cloud_believed
    assert sum(isinstance(item, MarkDown) for item in found.actions) == 6


def test_instances_the_toolkit_terminated_or_just_launched_are_not_missed():
    given = fleet(4)
    ids = [item.id for item in given.instances]
    claims = JournalView(
        recent_launches={key: Assignment(NODE, key, "", "") for key in ids[:2]},
        termination_causes=dict.fromkeys(ids[2:], EndCause.SUSPEND),
    )
    found = rules.plan(replace(given, instances=(), journal=claims))
    assert found.cloud_believed


def test_a_doubted_list_is_believed_after_ten_minutes_of_the_same_answer():
    given = replace(fleet(4), instances=())
    first = rules.plan(given)
    assert first.doubted_since == NOW
    waiting = replace(given, doubted_since=first.doubted_since)
    assert not rules.plan(replace(waiting, now=NOW + 599)).cloud_believed
    believed = rules.plan(replace(waiting, now=NOW + 600))
    assert believed.cloud_believed
    assert believed.doubted_since == NOW
    assert len(believed.without_instance_since) == 4, "and only now do the graces begin"


def test_an_instance_of_a_node_that_slurm_does_not_list_gets_a_warning_and_lives():
    """Leave a node out of Slurm's list.

    slurm.conf and burst.json disagree, or Slurm's list has a gap. The plan can't know which.
    """
    given = a_snapshot("IDLE", instance())
    nodes = {name: node for name, node in given.nodes.items() if name != NODE}
    found = rules.plan(replace(given, nodes=nodes))
    assert found.actions == ()
    assert found.warnings == ("i-1 is node gpu-001, which Slurm does not list",)


def test_each_instance_that_is_left_alone_gets_a_warning():
    given = a_snapshot("IDLE", instance(pool="cpu"), instance(id="i-2", role="web"))
    assert rules.plan(given).warnings == (
        "i-1 works as node gpu-001, though its tags say pool 'cpu'",
        "i-2 has the cluster's tag and no known role",
    )


LEFT = JournalView(powered_down_ids=frozenset({"i-1"}))
"""i-1 was launched for a node that Slurm has powered down since. Slurm powers the node up anew."""


def test_an_instance_whose_node_slurm_has_powered_down_ends_while_its_node_waits_for_another():
    found = rules.plan(a_snapshot("IDLE+POWERING_UP+NOT_RESPONDING", instance(), journal=LEFT))
    assert found.actions == (
        Terminate(instance(), EndCause.SUSPEND, "Slurm powered its node down after the launch"),
    )
    assert found.without_instance_since == {NODE: NOW}


def test_an_instance_whose_node_slurm_has_powered_down_is_not_the_one_a_job_waits_for():
    """Plan a node whose instance is from before its last power-down.

    The job is requeued first, so that no instance is terminated under a job.
    """
    flags = "ALLOCATED+POWERING_UP+NOT_RESPONDING"
    fresh = rules.plan(a_snapshot(flags, instance(), journal=LEFT))
    assert (fresh.actions, fresh.without_instance_since) == ((), {NODE: NOW})
    since = {NODE: NOW - MISSING_INSTANCE_GRACE}
    late = rules.plan(a_snapshot(flags, instance(), journal=LEFT, without_instance_since=since))
    reason = "toolkit: no-machine"
    assert late.actions == (MarkDown(NODE, reason), PowerDown(NODE, reason))


def test_of_two_instances_the_one_whose_node_slurm_has_powered_down_ends_although_it_is_older():
    new = instance(id="i-2", age=20)
    flags = "ALLOCATED+POWERING_UP+NOT_RESPONDING"
    found = rules.plan(a_snapshot(flags, instance(), new, journal=LEFT, instance_id=""))
    assert [item.instance.id for item in found.actions] == ["i-1"]


@pytest.mark.parametrize(
    "flags",
    ["ALLOCATED", "IDLE", "IDLE+NOT_RESPONDING", "ALLOCATED+POWERING_UP", "IDLE+POWERING_UP"],
)
def test_an_instance_whose_node_slurm_had_powered_down_stays_where_slurmd_answers_or_may(
    flags: str,
):
    assert rules.plan(a_snapshot(flags, instance(age=60), journal=LEFT)).actions == ()


def test_an_instance_whose_node_slurm_has_powered_down_is_left_to_the_run_that_is_at_its_node():
    claims = replace(LEFT, claimed_nodes=frozenset({NODE}))
    flags = "IDLE+POWERING_UP+NOT_RESPONDING"
    assert rules.plan(a_snapshot(flags, instance(), journal=claims)).actions == ()


def test_a_clock_that_is_set_back_prolongs_no_grace_and_no_doubt():
    """Plan with remembered times that are an hour ahead.

    A time in the future counts as now.
    """
    ahead = NOW + 3600
    found = rules.plan(a_snapshot("IDLE+NOT_RESPONDING", without_instance_since={NODE: ahead}))
    assert found.without_instance_since == {NODE: NOW}
    known = frozenset({"i-1", "i-2", "i-3"})
    held = rules.plan(a_snapshot("IDLE", known_instances=known, doubted_since=ahead))
    assert held.blocked_by
    assert held.doubted_since == NOW


def test_a_clock_that_is_set_back_lets_no_static_node_wait():
    given = static("IDLE+POWERED_DOWN", last_power_up={NODE: NOW + 3600})
    assert PowerUp(NODE, "a static node has no instance") in rules.plan(given).actions


def test_an_instance_in_an_unclear_state_may_be_the_nodes_unless_its_end_was_decided():
    may = instance(S.UNCLEAR, unclear="hibernating")
    flags = "IDLE+NOT_RESPONDING"
    assert rules.plan(a_snapshot(flags, may)).without_instance_since == {}
    ended = JournalView(termination_causes={"i-1": EndCause.SUSPEND})
    assert rules.plan(a_snapshot(flags, may, journal=ended)).without_instance_since == {NODE: NOW}


MEMORY: dict[str, Any] = {
    "without_instance_since": {NODE: NOW - 5},
    "last_power_up": {NODE: NOW - 6},
    "registration_requests": {NODE: RegistrationRequests(NOW - 8, NOW - 7)},
}


def test_while_slurm_is_not_believed_nothing_is_done_and_nothing_forgotten():
    given = replace(
        a_snapshot("ALLOCATED", TAKEN_INSTANCE, doubted_since=NOW - 9, **MEMORY), nodes={}
    )
    note = "Slurm lists 0 of 12 nodes: not trusted"
    assert rules.plan(given) == snapshot.Plan(blocked_by=note, doubted_since=NOW - 9, **MEMORY)


def test_while_ec2_is_not_believed_nothing_is_done_and_nothing_forgotten():
    known = frozenset({"i-1", "i-2", "i-3"})
    found = rules.plan(a_snapshot("ALLOCATED", known_instances=known, **MEMORY))
    note = "EC2 does not list 3 of 3 live instances: not trusted"
    assert found == snapshot.Plan(
        blocked_by=note, cloud_believed=False, doubted_since=NOW, **MEMORY
    )


def test_without_the_journal_only_jobs_whose_instance_is_seen_to_have_ended_are_sent_back():
    """Plan without a readable journal.

    No instance is terminated, because the claims of running ResumePrograms are unknown.
    """
    stopped = instance(S.STOPPED)
    found = rules.plan(
        a_snapshot("ALLOCATED", stopped, journal_unreadable=True, doubted_since=NOW - 9, **MEMORY)
    )
    reason = "toolkit: machine-ended"
    assert found == snapshot.Plan(
        (MarkDown(NODE, reason), PowerDown(NODE, reason)),
        blocked_by="the journal can't be read: no instance is terminated",
        cloud_believed=False,
        doubted_since=NOW - 9,
        **MEMORY,
    )


@pytest.mark.parametrize(
    ("flags", "seen"),
    [
        ("ALLOCATED", (instance(), instance(age=9, id="i-2"))),
        ("IDLE+POWERED_DOWN", (instance(),)),
        ("DOWN+POWERED_DOWN", (TAKEN_INSTANCE,)),
        ("IDLE+DRAIN", (instance(),)),
        ("ALLOCATED", ()),
    ],
)
def test_without_the_journal_no_other_node_is_touched(flags: str, seen: tuple[Instance, ...]):
    given = a_snapshot(
        flags, *seen, reason="toolkit: x", journal_unreadable=True, without_instance_since=LONG_AGO
    )
    assert rules.plan(given).actions == ()


@pytest.mark.parametrize(
    ("woken", "remembered", "power_up"),
    [
        ({}, NOW, True),
        ({NODE: NOW}, NOW, False),
        ({NODE: NOW - 299}, NOW - 299, False),
        ({NODE: NOW - 300}, NOW, True),
    ],
)
def test_a_static_node_is_asked_to_wake_every_five_minutes_and_that_is_remembered(
    woken: dict[hostlist.NodeName, float], remembered: float, power_up: bool
):
    found = rules.plan(static("IDLE+POWERED_DOWN", last_power_up=woken))
    assert found.last_power_up == {NODE: remembered}
    assert bool(found.actions) is power_up


def test_a_node_that_is_not_static_or_wakes_by_itself_is_not_remembered_as_woken():
    assert (
        rules.plan(a_snapshot("IDLE+POWERED_DOWN", last_power_up={NODE: NOW - 9})).last_power_up
        == {}
    )
    assert rules.plan(static("IDLE", instance(), last_power_up={NODE: NOW - 9})).last_power_up == {}
    assert rules.plan(static("IDLE+POWERED_DOWN+POWER_UP")).last_power_up == {}


def test_a_doubt_of_ec2s_list_ends_with_a_list_that_can_be_true():
    assert rules.plan(a_snapshot("IDLE", instance(), doubted_since=NOW - 9)).doubted_since is None
