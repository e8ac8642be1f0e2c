"""The whole table of reconcile: state of the node, state of its machines → actions."""

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
from slurmplugins.reconciler.forgotten_nodes import RegistrationRequests
from slurmplugins.state.journal_view import JournalView
from tests.fakes.engine import burst

NOW = 1_795_000_000.0
CONFIG = burst_config.parse(burst())
NODE = hostlist.parse("gpu-001")
S = InstanceState
TAKEN = "Server.SpotInstanceTermination"


def machine(state: InstanceState = S.RUNNING, *, age: float = 600, **more: Any) -> Instance:
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


def world(flags: str, *machines: Instance, reason: str = "", **more: Any) -> snapshot.Snapshot:
    nodes = {
        name: Node(name, frozenset({"IDLE", "CLOUD", "POWERED_DOWN"}))
        for name in CONFIG.pool_by_node
    }
    nodes[NODE] = Node(
        NODE, frozenset(flags.split("+")), reason, more.pop("instance_id", "i-1"), "10.42.1.11"
    )
    given: dict[str, Any] = {"claims": JournalView(), "now": NOW, **more}
    return snapshot.Snapshot(config=CONFIG, instances=machines, nodes=nodes, **given)


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
    """The plan in words: what, and to what."""
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


def static(flags: str, *machines: Instance, **more: Any) -> snapshot.Snapshot:
    given = world(flags, *machines, **more)
    return replace(given, config=replace(CONFIG, static=frozenset({NODE})))


TAKEN_MACHINE = machine(S.TERMINATED, end_code=TAKEN)
LOST = ["down toolkit: interrupted (Server.SpotInstanceTermination)", "power-down"]
LONG_AGO = {NODE: NOW - MISSING_INSTANCE_GRACE}
TABLE: dict[str, tuple[snapshot.Snapshot, list[str]]] = {
    # Slurm has let go
    "powered down, no machine": (world("IDLE+POWERED_DOWN"), []),
    "powered down, drained by us before no pass saw it power down": (
        world("IDLE+DRAIN+POWERED_DOWN", reason="toolkit: spot interruption"),
        ["reopen"],
    ),
    "powered down, drained by an admin": (world("IDLE+DRAIN+POWERED_DOWN", reason="flood"), []),
    "powered down, old machine": (world("IDLE+POWERED_DOWN", machine()), ["end i-1:orphan"]),
    "powered down, young machine": (world("IDLE+POWERED_DOWN", machine(age=30)), []),
    "powered down, machine ending": (world("IDLE+POWERED_DOWN", machine(S.SHUTTING_DOWN)), []),
    "powering down, machine lives": (world("IDLE+POWERING_DOWN", machine()), ["end i-1:suspend"]),
    "powering down, machine ending": (world("IDLE+POWERING_DOWN", machine(S.SHUTTING_DOWN)), []),
    "powering down, machine ended": (world("IDLE+POWERING_DOWN", TAKEN_MACHINE), ["reopen"]),
    "powering down, no machine": (world("IDLE+POWERING_DOWN"), ["reopen"]),
    "powering down, drained by an admin": (
        world("IDLE+DRAIN+POWERING_DOWN", reason="bad disk"),
        [],
    ),
    "powering down, drained by us": (
        world("IDLE+DRAIN+POWERING_DOWN", reason="toolkit: spot interruption"),
        ["reopen"],
    ),
    "timed out, no machine": (
        world("DOWN+POWERED_DOWN", reason="ResumeTimeout reached"),
        ["reopen"],
    ),
    "timed out, machine lives": (
        world("DOWN+POWERED_DOWN", machine(age=10), reason="x : ResumeTimeout reached"),
        ["end i-1:boot-failed"],
    ),
    "timed out and up again, machine lives": (
        world("IDLE+POWERED_DOWN", machine(age=10), reason="ResumeTimeout reached"),
        ["end i-1:orphan"],
    ),
    "given back and powered down, machine lives": (
        world("DOWN+POWERED_DOWN", machine(), reason="toolkit: no-capacity"),
        ["end i-1:orphan"],
    ),
    "down and powered down by an admin": (world("DOWN+POWERED_DOWN", reason="flood"), []),
    "given back and powered down, no machine": (
        world("DOWN+POWERED_DOWN", reason="toolkit: no-capacity"),
        ["reopen"],
    ),
    "given back and powered down, machine ending": (
        world("DOWN+POWERED_DOWN", machine(S.SHUTTING_DOWN), reason="toolkit: no-capacity"),
        [],
    ),
    "powering down and down, no machine": (
        world("DOWN+POWERING_DOWN", reason="toolkit: interrupted"),
        ["reopen"],
    ),
    "powering down, wanted again, machine lives": (
        world("IDLE+POWERING_DOWN+POWER_UP", machine()),
        ["end i-1:suspend"],
    ),
    "powering down, wanted again, machine ended": (
        world("IDLE+POWERING_DOWN+POWER_UP", TAKEN_MACHINE),
        ["reopen"],
    ),
    "powered down, machine stopped": (
        world("IDLE+POWERED_DOWN", machine(S.STOPPED)),
        ["end i-1:unknown"],
    ),
    "powered down, machine stopping": (
        world("IDLE+POWERED_DOWN", machine(S.STOPPING)),
        ["end i-1:unknown"],
    ),
    "powered down, machine stopped, its end decided before": (
        world(
            "IDLE+POWERED_DOWN",
            machine(S.STOPPED),
            claims=JournalView(termination_causes={"i-1": EndCause.SUSPEND}),
        ),
        ["end i-1:suspend"],
    ),
    "powered down, power-up asked, old machine": (
        world("ALLOCATED+POWERED_DOWN+POWER_UP", machine()),
        ["end i-1:orphan"],
    ),
    # Slurm wants it up
    "up and backed": (world("ALLOCATED", machine()), []),
    "up and starting": (world("ALLOCATED+POWERING_UP", machine(S.PENDING, age=5)), []),
    "starting for longer than a healthy one takes, slurmd silent": (
        world("ALLOCATED+POWERING_UP+NOT_RESPONDING", machine(age=46)),
        ["register"],
    ),
    "starting, slurmd silent": (
        world("ALLOCATED+POWERING_UP+NOT_RESPONDING", machine(age=44)),
        [],
    ),
    "a job on it, powered down, machine lives": (
        world("ALLOCATED+POWERED_DOWN", machine()),
        ["register"],
    ),
    "the same, and a person has drained it": (
        world("ALLOCATED+DRAIN+POWERED_DOWN", machine(), reason="flood"),
        ["register"],
    ),
    "the same, and nothing came of that for ResumeTimeout": (
        world(
            "ALLOCATED+DRAIN+POWERED_DOWN",
            machine(),
            reason="flood",
            asked={NODE: RegistrationRequests(NOW - 180, NOW - 60)},
        ),
        [],
    ),
    "a job on it, powered down, machine lives, asked for ResumeTimeout": (
        world(
            "ALLOCATED+POWERED_DOWN",
            machine(),
            asked={NODE: RegistrationRequests(NOW - 180, NOW - 60)},
        ),
        ["down toolkit: never-registered"],
    ),
    "a job on it, powered down, no machine": (world("ALLOCATED+POWERED_DOWN"), []),
    "up, machine taken": (world("ALLOCATED", TAKEN_MACHINE), LOST),
    "up, machine being taken": (
        world("ALLOCATED", machine(S.SHUTTING_DOWN, end_code=TAKEN)),
        LOST,
    ),
    "drained by us, machine taken": (
        world("ALLOCATED+DRAIN", TAKEN_MACHINE, reason="toolkit: spot interruption"),
        LOST,
    ),
    "drained by us, told to power down, machine taken": (
        world("ALLOCATED+DRAIN+POWER_DOWN", TAKEN_MACHINE, reason="toolkit: spot interruption"),
        LOST[:1],
    ),
    "drained by an admin, machine taken": (
        world("ALLOCATED+DRAIN", TAKEN_MACHINE, reason="testing"),
        [],
    ),
    "up, machine ended by someone": (
        world("IDLE", machine(S.TERMINATED, end_code="Client.UserInitiatedShutdown")),
        ["down toolkit: machine-ended (Client.UserInitiatedShutdown)", "power-down"],
    ),
    "up, machine powered itself off": (
        world("IDLE", machine(S.STOPPED)),
        ["end i-1:unknown", "down toolkit: machine-ended", "power-down"],
    ),
    "powering up, its own machine died": (world("ALLOCATED+POWERING_UP", TAKEN_MACHINE), LOST),
    "powering up, an earlier machine died": (
        world("ALLOCATED+POWERING_UP", TAKEN_MACHINE, instance_id=""),
        [],
    ),
    "up, no machine seen for the first time": (world("IDLE"), []),
    "up, no machine listed for long": (world("ALLOCATED", unbacked_since=LONG_AGO), []),
    "silent, no machine for long": (
        world("ALLOCATED+NOT_RESPONDING", unbacked_since=LONG_AGO),
        ["down toolkit: no-machine", "power-down"],
    ),
    "silent, no machine for less than the grace": (
        world("ALLOCATED+NOT_RESPONDING", unbacked_since={NODE: NOW - MISSING_INSTANCE_GRACE + 1}),
        [],
    ),
    "powering up, no machine for long": (
        world("ALLOCATED+POWERING_UP", unbacked_since=LONG_AGO),
        ["down toolkit: no-machine", "power-down"],
    ),
    "fell silent, no machine for long": (
        world("DOWN", reason="Not responding", unbacked_since=LONG_AGO),
        ["power-down"],
    ),
    "completing, silent, no machine for long": (
        world("IDLE+COMPLETING+NOT_RESPONDING", unbacked_since=LONG_AGO),
        ["down toolkit: no-machine", "power-down"],
    ),
    "reserved and planned, silent, no machine for long": (
        world("IDLE+RESERVED+PLANNED+MAINTENANCE+NOT_RESPONDING", unbacked_since=LONG_AGO),
        ["down toolkit: no-machine", "power-down"],
    ),
    "of unknown state since slurmctld started, no machine for long": (
        world("UNKNOWN+CLOUD", unbacked_since=LONG_AGO),
        ["down toolkit: no-machine", "power-down"],
    ),
    "failing, silent, no machine for long": (
        world("IDLE+FAIL+NOT_RESPONDING", unbacked_since=LONG_AGO),
        ["down toolkit: no-machine", "power-down"],
    ),
    "downed by an admin, no machine": (
        world("DOWN", reason="flood", unbacked_since=LONG_AGO),
        [],
    ),
    "given back, resume died in between": (
        world("DOWN+POWERING_UP", machine(), reason="toolkit: no-capacity"),
        ["power-down"],
    ),
    "given back, powering down asked": (
        world("DOWN+POWER_DOWN", machine(), reason="toolkit: no-capacity"),
        [],
    ),
    "drained by us, jobs still there": (
        world("ALLOCATED+DRAIN", machine(), reason="toolkit: spot interruption"),
        ["power-down"],
    ),
    "drained by us, idle": (
        world("IDLE+DRAIN", machine(), reason="toolkit: spot interruption"),
        ["power-down"],
    ),
    "drained by us, power down asked": (
        world("IDLE+DRAIN+POWER_DOWN", machine(), reason="toolkit: spot interruption"),
        [],
    ),
    "drained by us while it booted": (
        world("IDLE+DRAIN+POWERING_UP", machine(age=60), reason="toolkit: spot interruption"),
        [],
    ),
    "drained by an admin": (world("IDLE+DRAIN", machine(), reason="bad disk"), []),
    # Somebody reboots it: Slurm gives the node a reason of its own, or none
    "told to reboot when idle": (world("ALLOCATED+REBOOT_REQUESTED", machine()), []),
    "told to reboot now": (
        world("IDLE+DRAIN+REBOOT_REQUESTED", machine(), reason="Reboot ASAP"),
        [],
    ),
    "rebooting": (
        world("DOWN+REBOOT_ISSUED", machine(), reason="Reboot ASAP : reboot issued"),
        [],
    ),
    "rebooting and silent": (world("IDLE+NOT_RESPONDING+REBOOT_ISSUED", machine()), []),
    "rebooting, its machine taken": (world("ALLOCATED+REBOOT_ISSUED", TAKEN_MACHINE), LOST),
    "did not come back from a reboot": (  # SuspendTime after which Slurm powers it down
        world("DOWN", machine(), reason="reboot timed out"),
        [],
    ),
    "drained by slurmd itself": (world("IDLE+DRAIN", machine(), reason="Kill task failed"), []),
    "two machines": (
        world("ALLOCATED", machine(age=900, id="i-0", address="10.42.1.9"), machine()),
        ["end i-0:orphan"],
    ),
    "two machines, Slurm knows the address of one": (
        world(
            "ALLOCATED",
            machine(age=900, id="i-0", address="10.42.1.9"),
            machine(age=5),
            instance_id="",
        ),
        ["end i-0:orphan"],
    ),
    "two machines, Slurm knows neither": (
        world("ALLOCATED+POWERING_UP", machine(age=5, id="i-2", address=""), machine(age=9)),
        ["end i-2:orphan"],
    ),
    # It starts, and does not come up
    "pending for half of ResumeTimeout": (
        world("ALLOCATED+POWERING_UP", machine(S.PENDING, age=91)),
        ["end i-1:boot-failed", "down toolkit: never-booted", "power-down"],
    ),
    "pending for less": (world("ALLOCATED+POWERING_UP", machine(S.PENDING, age=89)), []),
    "boots, and never registers": (
        world("ALLOCATED+POWERING_UP", machine(age=241)),
        ["end i-1:boot-failed", "down toolkit: never-registered", "power-down"],
    ),
    "boots, and Slurm has yet to lose patience": (
        world("ALLOCATED+POWERING_UP", machine(age=239)),
        [],
    ),
    "boots, and an admin holds the node": (
        world("IDLE+DRAIN+POWERING_UP", machine(age=900), reason="looking at it"),
        [],
    ),
    "impaired while it boots": (
        world("ALLOCATED+POWERING_UP", machine(age=200), health=sick(impaired_since=NOW - 180)),
        ["end i-1:boot-failed", "down toolkit: impaired", "power-down"],
    ),
    "registers as something else": (
        world("IDLE+DRAIN+INVALID_REG", machine(), reason="Low RealMemory (reported:1 < 2)"),
        ["end i-1:boot-failed", "down toolkit: invalid-registration", "power-down"],
    ),
    "registers as something else, and has a job": (
        world("ALLOCATED+DRAIN+INVALID_REG", machine(), reason="Low RealMemory"),
        [],
    ),
    "dies while it boots": (
        world("ALLOCATED+POWERING_UP", machine(S.TERMINATED, end_code="Client.InternalError")),
        ["down toolkit: machine-ended (Client.InternalError)", "power-down"],
    ),
    # It works, and EC2 has news
    "spot notice": (
        world("ALLOCATED", machine(), health=sick(notice=True)),
        ["drain toolkit: spot interruption, seen from the head"],
    ),
    "spot notice, and a pass later nothing from the node agent": (
        world(
            "ALLOCATED+DRAIN",
            machine(),
            health=sick(notice=True),
            reason="toolkit: spot interruption, seen from the head",
        ),
        ["ask toolkit: spot interruption, jobs asked from the head"],
    ),
    "the same, and no job is there": (
        world(
            "IDLE+DRAIN",
            machine(),
            health=sick(notice=True),
            reason="toolkit: spot interruption, seen from the head",
        ),
        ["power-down"],
    ),
    "spot notice, its jobs asked from the head": (
        world(
            "ALLOCATED+DRAIN",
            machine(),
            health=sick(notice=True),
            reason="toolkit: spot interruption, jobs asked from the head",
        ),
        ["power-down"],
    ),
    "spot notice, the node agent was first": (
        world(
            "ALLOCATED+DRAIN+POWER_DOWN",
            machine(),
            health=sick(notice=True),
            reason="toolkit: spot interruption",
        ),
        [],
    ),
    "spot notice while it boots": (
        world("ALLOCATED+POWERING_UP", machine(age=60), health=sick(notice=True)),
        [],
    ),
    "spot notice on an admin's node": (
        world("IDLE+DRAIN", machine(), health=sick(notice=True), reason="bad disk"),
        [],
    ),
    "retires in a week, idle": (
        world("IDLE", machine(), health=retires(7 * 86_400)),
        ["drain toolkit: scheduled instance-retirement"],
    ),
    "retires in a week, busy": (world("ALLOCATED", machine(), health=retires(7 * 86_400)), []),
    "retires tomorrow, busy": (
        world("MIXED", machine(), health=retires(86_400)),
        ["drain toolkit: scheduled instance-retirement"],
    ),
    "retires tomorrow, drained for it": (
        world(
            "IDLE+DRAIN",
            machine(),
            health=retires(86_400),
            reason="toolkit: scheduled instance-retirement",
        ),
        ["power-down"],
    ),
    "retires tomorrow, an admin's": (
        world("IDLE+DRAIN", machine(), health=retires(86_400), reason="x"),
        [],
    ),
    "impaired for a moment": (
        world("ALLOCATED", machine(), health=sick(impaired_since=NOW - 179)),
        [],
    ),
    "impaired, and slurmd answers": (
        world("ALLOCATED", machine(), health=sick(impaired_since=NOW - 180)),
        ["drain toolkit: impaired"],
    ),
    "impaired and silent": (
        world("ALLOCATED+NOT_RESPONDING", machine(), health=sick(impaired_since=NOW - 180)),
        ["down toolkit: impaired", "power-down"],
    ),
    "impaired and silent, drained by an admin": (
        world(
            "IDLE+DRAIN+NOT_RESPONDING",
            machine(),
            health=sick(impaired_since=NOW - 180),
            reason="flood",
        ),
        [],
    ),
    "impaired and silent, drained by us": (
        world(
            "ALLOCATED+DRAIN+NOT_RESPONDING",
            machine(),
            health=sick(impaired_since=NOW - 180),
            reason="toolkit: spot interruption",
        ),
        ["down toolkit: impaired", "power-down"],
    ),
    "spot notice, given back": (
        world("DOWN", machine(), health=sick(notice=True), reason="toolkit: no-capacity"),
        ["power-down"],
    ),
    "spot notice, power down asked": (
        world("ALLOCATED+POWER_DOWN", machine(), health=sick(notice=True)),
        [],
    ),
    "impaired, Slurm has let go": (
        world("IDLE+POWERED_DOWN", machine(age=30), health=sick(impaired_since=0)),
        [],
    ),
    "fell silent, machine lives": (
        world("DOWN+NOT_RESPONDING", machine(), reason="Not responding"),
        ["power-down"],
    ),
    "fell silent, powering down asked": (
        world("DOWN+POWER_DOWN", machine(), reason="Not responding"),
        [],
    ),
    "silent for less than SlurmdTimeout": (world("IDLE+NOT_RESPONDING", machine()), []),
    "downed by an admin, machine lives": (world("DOWN", machine(), reason="flood"), []),
    # Tags
    "tags of another pool, not in use": (
        world("IDLE", machine(), machine(id="i-2", pool="cpu")),
        ["end i-2:orphan"],
    ),
    "tags of another pool, young": (
        world("IDLE", machine(), machine(id="i-2", pool="cpu", age=5)),
        [],
    ),
    "tags of another pool, and Slurm uses it": (world("IDLE", machine(pool="cpu")), []),
    "tags of no role": (world("IDLE", machine(), machine(id="i-2", role="")), []),
    # Static nodes
    "static, powered down": (static("IDLE+POWERED_DOWN"), ["power-up"]),
    "static, powered up": (static("IDLE", machine()), []),
    "static, waking": (static("IDLE+POWERED_DOWN+POWER_UP"), []),
    "static, tried a minute ago": (static("IDLE+POWERED_DOWN", woken={NODE: NOW - 60}), []),
    "static, tried five minutes ago": (
        static("IDLE+POWERED_DOWN", woken={NODE: NOW - 300}),
        ["power-up"],
    ),
    "static, drained by an admin": (static("IDLE+DRAIN+POWERED_DOWN", reason="bad disk"), []),
    "static, did not come up": (
        static("DOWN+POWERED_DOWN", reason="ResumeTimeout reached"),
        ["reopen"],
    ),
    "static, powering down, no machine": (static("IDLE+POWERING_DOWN"), ["reopen"]),
    "static, given back": (
        static("DOWN+POWERED_DOWN", reason="toolkit: no-capacity"),
        ["reopen"],
    ),
    "static, its machine still ending": (
        static("IDLE+POWERED_DOWN", machine(S.SHUTTING_DOWN)),
        [],
    ),
    # What the journal knows
    "a run is at it": (
        world(
            "ALLOCATED+POWERING_UP",
            machine(age=900, id="i-0"),
            machine(),
            claims=JournalView(claimed_nodes=frozenset({NODE})),
        ),
        [],
    ),
    "just launched, not listed": (
        world(
            "ALLOCATED+POWERING_UP",
            unbacked_since=LONG_AGO,
            claims=JournalView(
                recent_launches={"i-9": Assignment(NODE, "i-9", "10.42.1.9", "g5.xlarge")}
            ),
        ),
        [],
    ),
    "powering down, launched and not listed": (
        world(
            "IDLE+POWERING_DOWN",
            claims=JournalView(
                recent_launches={"i-9": Assignment(NODE, "i-9", "10.42.1.9", "g5.xlarge")}
            ),
        ),
        [],
    ),
    "condemned and alive": (
        world(
            "IDLE+POWERED_DOWN",
            machine(),
            claims=JournalView(termination_causes={"i-1": EndCause.SUSPEND}),
        ),
        ["end i-1:suspend"],
    ),
    # Machines without a node
    "no such node, old": (
        world("IDLE", machine(), machine(id="i-2", node=hostlist.parse("gone-1"))),
        ["end i-2:orphan"],
    ),
    "no such node, young": (
        world("IDLE", machine(), machine(id="i-2", node=hostlist.parse("gone-1"), age=5)),
        [],
    ),
    "tags that can't be read, old": (
        world("IDLE", machine(), machine(id="i-2", node=None)),
        ["end i-2:orphan"],
    ),
    "of a fleet that its run is about to name": (
        world(
            "IDLE",
            machine(),
            machine(id="i-2", node=None, attempt="f1"),
            claims=JournalView(awaiting_reply=frozenset({"f1"})),
        ),
        [],
    ),
    "the head": (world("IDLE", machine(), machine(id="i-h", role="head", node=None)), []),
    "a builder": (world("IDLE", machine(), machine(id="i-b", role="builder", node=None)), []),
}


@pytest.mark.parametrize("name", TABLE)
def test_the_table(name: str):
    """Each state of a node and its machines has exactly the actions in the table."""
    given, expected = TABLE[name]
    assert told(rules.plan(given)) == expected


def test_nodes_that_burst_json_does_not_name_are_never_touched():
    given = world("IDLE", machine())
    nodes = {**given.nodes, "onprem-1": Node("onprem-1", frozenset({"DOWN"}), "toolkit: x")}
    assert rules.plan(replace(given, nodes=nodes)).actions == ()


def test_a_machine_of_a_node_slurm_knows_and_we_do_not_is_left_alone():
    stranger = hostlist.parse("onprem-1")
    given = world("IDLE", machine(), machine(id="i-2", node=stranger))
    nodes = {**given.nodes, stranger: Node(stranger, frozenset({"IDLE"}))}
    assert rules.plan(replace(given, nodes=nodes)).actions == ()


def test_a_slurm_that_lists_too_few_nodes_is_not_believed():
    given = replace(world("IDLE+POWERED_DOWN", machine()), nodes={})
    found = rules.plan(given)
    assert found.actions == ()
    assert "not believed" in found.blocked_by


def test_a_node_that_answers_without_a_listed_machine_is_remarked():
    given = world("ALLOCATED", unbacked_since=LONG_AGO)
    said = (f"{NODE} answers, and EC2 lists no machine for it: left alone",)
    assert rules.plan(given).warnings == said
    assert rules.plan(replace(given, unbacked_since={})).warnings == ()


def test_how_long_a_node_has_no_machine_is_remembered_and_forgotten():
    first = rules.plan(world("IDLE"))
    assert first.without_instance_since == {NODE: NOW}
    later = rules.plan(world("IDLE", unbacked_since=first.without_instance_since, now=NOW + 30))
    assert later.without_instance_since == {NODE: NOW}
    backed = rules.plan(world("IDLE", machine(), unbacked_since=later.without_instance_since))
    assert backed.without_instance_since == {}


def fleet(size: int, **more: Any) -> snapshot.Snapshot:
    """`size` nodes up with a machine each, and nothing else."""
    names_ = list(CONFIG.pool_by_node)[:size]
    found = world("IDLE", **more)
    machines = tuple(
        machine(id=f"i-{name}", node=name, pool=CONFIG.pool_by_node[name]) for name in names_
    )
    up = {name: Node(name, frozenset({"IDLE", "CLOUD"}), "", f"i-{name}") for name in names_}
    return replace(found, instances=machines, nodes={**found.nodes, **up})


def test_an_ec2_that_lists_nothing_while_machines_answer_is_not_believed():
    found = rules.plan(replace(fleet(4), instances=()))
    assert found.actions == ()
    assert not found.cloud_believed
    assert "EC2 lists none of 4 of 4" in found.blocked_by


def test_an_ec2_that_forgets_most_machines_of_the_last_pass_is_not_believed():
    known = frozenset({"i-a", "i-b", "i-c", "i-d"})
    off = replace(fleet(0), instances=(machine(id="i-a", node=None),), known=known)
    found = rules.plan(off)
    assert (found.actions, found.cloud_believed) == ((), False)


def test_losing_half_of_the_machines_is_believed():
    given = fleet(6)
    found = rules.plan(replace(given, instances=given.instances[:3]))
    assert found.cloud_believed
    assert len(found.without_instance_since) == 3


def test_machines_that_ended_are_no_reason_to_doubt():
    given = fleet(6)
    ended = tuple(replace(item, state=S.TERMINATED, end_code=TAKEN) for item in given.instances)
    found = rules.plan(replace(given, instances=ended))
    assert found.cloud_believed
    assert sum(isinstance(item, MarkDown) for item in found.actions) == 6


def test_machines_we_ended_or_just_launched_are_not_missed():
    given = fleet(4)
    ids = [item.id for item in given.instances]
    claims = JournalView(
        recent_launches={key: Assignment(NODE, key, "", "") for key in ids[:2]},
        termination_causes=dict.fromkeys(ids[2:], EndCause.SUSPEND),
    )
    found = rules.plan(replace(given, instances=(), claims=claims))
    assert found.cloud_believed


def test_doubt_ends_after_ten_minutes_of_the_same_answer():
    given = replace(fleet(4), instances=())
    first = rules.plan(given)
    assert first.doubted_since == NOW
    waiting = replace(given, doubted_since=first.doubted_since)
    assert not rules.plan(replace(waiting, now=NOW + 599)).cloud_believed
    believed = rules.plan(replace(waiting, now=NOW + 600))
    assert believed.cloud_believed
    assert believed.doubted_since == NOW
    assert len(believed.without_instance_since) == 4, "and only now do the graces begin"


def test_a_machine_of_a_node_that_slurm_does_not_list_is_remarked_and_lives():
    """slurm.conf and burst.json disagree, or Slurm's list has a hole: nobody here can know."""
    given = world("IDLE", machine())
    nodes = {name: node for name, node in given.nodes.items() if name != NODE}
    found = rules.plan(replace(given, nodes=nodes))
    assert found.actions == ()
    assert found.warnings == ("i-1 is gpu-001, which Slurm does not have: left alone",)


def test_what_is_left_alone_is_remarked():
    given = world("IDLE", machine(pool="cpu"), machine(id="i-2", role="web"))
    assert rules.plan(given).warnings == (
        "i-1 works as gpu-001, though its tags say pool 'cpu'",
        "i-2 has the cluster's tag and no known role: left alone",
    )


LEFT = JournalView(powered_down_ids=frozenset({"i-1"}))
"""Slurm has powered the node down since i-1 was launched for it, and asks for it anew."""


def test_a_machine_that_slurm_has_let_go_of_ends_while_its_node_waits_for_another():
    found = rules.plan(world("IDLE+POWERING_UP+NOT_RESPONDING", machine(), claims=LEFT))
    assert found.actions == (
        Terminate(machine(), EndCause.SUSPEND, "Slurm has powered its node down since"),
    )
    assert found.without_instance_since == {NODE: NOW}


def test_a_machine_that_slurm_has_let_go_of_is_not_the_one_a_job_waits_for():
    """The job goes back first, so that nothing is ended under one."""
    flags = "ALLOCATED+POWERING_UP+NOT_RESPONDING"
    fresh = rules.plan(world(flags, machine(), claims=LEFT))
    assert (fresh.actions, fresh.without_instance_since) == ((), {NODE: NOW})
    since = {NODE: NOW - MISSING_INSTANCE_GRACE}
    late = rules.plan(world(flags, machine(), claims=LEFT, unbacked_since=since))
    reason = "toolkit: no-machine"
    assert late.actions == (MarkDown(NODE, reason), PowerDown(NODE, reason))


def test_of_two_machines_the_one_that_slurm_has_let_go_of_ends_although_it_is_older():
    new = machine(id="i-2", age=20)
    flags = "ALLOCATED+POWERING_UP+NOT_RESPONDING"
    found = rules.plan(world(flags, machine(), new, claims=LEFT, instance_id=""))
    assert [item.instance.id for item in found.actions] == ["i-1"]


@pytest.mark.parametrize(
    "flags",
    ["ALLOCATED", "IDLE", "IDLE+NOT_RESPONDING", "ALLOCATED+POWERING_UP", "IDLE+POWERING_UP"],
)
def test_a_machine_that_slurm_had_let_go_of_stays_where_slurmd_answers_or_may(flags: str):
    assert rules.plan(world(flags, machine(age=60), claims=LEFT)).actions == ()


def test_a_machine_that_slurm_has_let_go_of_is_left_to_the_run_that_is_at_its_node():
    claims = replace(LEFT, busy=frozenset({NODE}))
    flags = "IDLE+POWERING_UP+NOT_RESPONDING"
    assert rules.plan(world(flags, machine(), claims=claims)).actions == ()


def test_a_clock_that_is_set_back_prolongs_no_grace_and_no_doubt():
    """What is remembered from an hour ahead began just now."""
    ahead = NOW + 3600
    found = rules.plan(world("IDLE+NOT_RESPONDING", unbacked_since={NODE: ahead}))
    assert found.without_instance_since == {NODE: NOW}
    known = frozenset({"i-1", "i-2", "i-3"})
    held = rules.plan(world("IDLE", known=known, doubted_since=ahead))
    assert held.blocked_by
    assert held.doubted_since == NOW


def test_a_clock_that_is_set_back_lets_no_static_node_wait():
    given = static("IDLE+POWERED_DOWN", woken={NODE: NOW + 3600})
    assert PowerUp(NODE, "a static node") in rules.plan(given).actions


def test_an_instance_in_an_unclear_state_may_be_the_nodes_unless_its_end_was_decided():
    may = machine(S.UNCLEAR, unclear="hibernating")
    flags = "IDLE+NOT_RESPONDING"
    assert rules.plan(world(flags, may)).without_instance_since == {}
    ended = JournalView(termination_causes={"i-1": EndCause.SUSPEND})
    assert rules.plan(world(flags, may, claims=ended)).without_instance_since == {NODE: NOW}


MEMORY: dict[str, Any] = {
    "unbacked_since": {NODE: NOW - 5},
    "woken": {NODE: NOW - 6},
    "asked": {NODE: RegistrationRequests(NOW - 8, NOW - 7)},
}


def test_while_slurm_is_not_believed_nothing_is_done_and_nothing_forgotten():
    given = replace(world("ALLOCATED", TAKEN_MACHINE, doubted_since=NOW - 9, **MEMORY), nodes={})
    note = "Slurm lists 0 of 12 nodes: not believed"
    assert rules.plan(given) == snapshot.Plan(blocked_by=note, doubted_since=NOW - 9, **MEMORY)


def test_while_ec2_is_not_believed_nothing_is_done_and_nothing_forgotten():
    known = frozenset({"i-1", "i-2", "i-3"})
    found = rules.plan(world("ALLOCATED", known=known, **MEMORY))
    note = "EC2 lists none of 3 of 3 live machines: not believed"
    assert found == snapshot.Plan(
        blocked_by=note, cloud_believed=False, doubted_since=NOW, **MEMORY
    )


def test_without_the_journal_only_jobs_whose_instance_is_seen_to_have_ended_are_sent_back():
    """Nothing is ended: nobody knows what runs of resume are at."""
    stopped = machine(S.STOPPED)
    found = rules.plan(world("ALLOCATED", stopped, blind=True, doubted_since=NOW - 9, **MEMORY))
    reason = "toolkit: machine-ended"
    assert found == snapshot.Plan(
        (MarkDown(NODE, reason), PowerDown(NODE, reason)),
        blocked_by="the journal can't be read: nothing is ended",
        cloud_believed=False,
        doubted_since=NOW - 9,
        **MEMORY,
    )


@pytest.mark.parametrize(
    ("flags", "seen"),
    [
        ("ALLOCATED", (machine(), machine(age=9, id="i-2"))),
        ("IDLE+POWERED_DOWN", (machine(),)),
        ("DOWN+POWERED_DOWN", (TAKEN_MACHINE,)),
        ("IDLE+DRAIN", (machine(),)),
        ("ALLOCATED", ()),
    ],
)
def test_without_the_journal_no_other_node_is_touched(flags: str, seen: tuple[Instance, ...]):
    given = world(flags, *seen, reason="toolkit: x", blind=True, unbacked_since=LONG_AGO)
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
    found = rules.plan(static("IDLE+POWERED_DOWN", woken=woken))
    assert found.last_power_up == {NODE: remembered}
    assert bool(found.actions) is power_up


def test_a_node_that_is_not_static_or_wakes_by_itself_is_not_remembered_as_woken():
    assert rules.plan(world("IDLE+POWERED_DOWN", woken={NODE: NOW - 9})).last_power_up == {}
    assert rules.plan(static("IDLE", machine(), woken={NODE: NOW - 9})).last_power_up == {}
    assert rules.plan(static("IDLE+POWERED_DOWN+POWER_UP")).last_power_up == {}


def test_a_doubt_of_ec2s_list_ends_with_a_list_that_can_be_true():
    assert rules.plan(world("IDLE", machine(), doubted_since=NOW - 9)).doubted_since is None
