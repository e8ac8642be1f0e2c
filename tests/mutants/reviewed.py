"""The mutants that a hostile reader made by hand and no unit test noticed then, as text."""

from __future__ import annotations

from dataclasses import dataclass

UNIT = ("tests/unit/slurmplugins",)
SENT = (
    "tests/golden/launch",
    "tests/unit/slurmplugins/launch/test_launch_call.py",
    "tests/property/engine/test_launch_laws.py",
)
POLICY = ("tests/unit/slurmplugins/launch/test_fallback.py",)
DECIDED = ("tests/unit/slurmplugins/reconciler/test_decisions.py",)
GOING_ON = ("tests/unit/slurmplugins/execution/test_executor.py",)
COMMITTED = ("tests/contract/training/test_checkpoint_files.py",)
TIERS = ("tests/contract/training/test_checkpoint_tiers.py",)
OWNED = ("tests/unit/training/attempt/test_fencing.py",)
ENDED = (
    "tests/unit/training/requeue/test_end_of_attempt.py",
    "tests/unit/training/requeue/test_lost_peers.py",
)
STACK = ("tests/unit/deploy/test_rights.py",)


@dataclass(frozen=True)
class Mutant:
    """One change: `old`, which must be in the file once, becomes `new`."""

    path: str
    what: str
    old: str
    new: str
    tests: tuple[str, ...]
    equivalent: str = ""
    """Why nothing that may be relied on changes with it."""


SPEC, POLICY_PY = "slurmplugins/cloud/ec2_messages.py", "slurmplugins/launch/fallback.py"
STACK_J2 = "templates/aws/stack.yaml.j2"
END_OURS = """\
                Action: ec2:TerminateInstances
                Resource: !Sub arn:${AWS::Partition}:ec2:{{ region }}:${AWS::AccountId}:instance/*
                Condition:
                  StringEquals:
                    aws:ResourceTag/toolkit:cluster: {{ cluster }}
"""

REVIEWED: tuple[Mutant, ...] = (
    Mutant(SPEC, "reservation not sent", "    if offering.reservation:", "    if False:", SENT),
    Mutant(
        SPEC, "capacity block's market not sent", "    if offering.block:", "    if False:", SENT
    ),
    Mutant(
        SPEC,
        "a minimum without a single zone",
        '"SingleAvailabilityZone": True',
        '"SingleAvailabilityZone": False',
        SENT,
    ),
    Mutant(
        SPEC,
        "allocation strategies swapped",
        '"price-capacity-optimized" if spot else "prioritized"',
        '"prioritized" if spot else "price-capacity-optimized"',
        SENT,
    ),
    Mutant(
        SPEC,
        "one-time spot that stops",
        '"InstanceInterruptionBehavior": "terminate"}',
        '"InstanceInterruptionBehavior": "stop"}',
        SENT,
    ),
    Mutant(
        SPEC,
        "a fleet's machines may name themselves too early",
        "    if request.others:\n        values",
        "    if False:\n        values",
        SENT,
    ),
    Mutant(SPEC, "events that are over drain nodes", ".startswith(_OVER)", ".startswith(())", SENT),
    Mutant(
        POLICY_PY,
        "no reservation in spot-first",
        "return [*reserved, *spot, *demand]",
        "return [*spot, *demand]",
        POLICY,
    ),
    Mutant(
        POLICY_PY,
        "no reservation in on-demand-only",
        "return [*reserved, *demand]",
        "return demand",
        POLICY,
    ),
    Mutant(
        POLICY_PY,
        "a reservation joins what comes before it",
        "item.lifecycle or item.reservation)",
        "item.lifecycle)",
        POLICY,
    ),
    Mutant(
        POLICY_PY,
        "what follows a reservation joins it",
        "[] if item.reservation else [*run, rungs[-1]]",
        "[*run, rungs[-1]]",
        POLICY,
    ),
    Mutant(POLICY_PY, "an unknown price is cheapest", "return not price,", "return False,", POLICY),
    Mutant(
        "slurmplugins/launch/fallback.py",
        "ended machines count in max_spot_share",
        "if machine.state.live:",
        "if machine:",
        POLICY,
    ),
    Mutant(
        "slurmplugins/power_save/planner.py",
        "a job whose adopted node is up is given back",
        "    fine |= up.intersection(item.node for item in plan.adopt)\n",
        "",
        DECIDED,
    ),
    Mutant(
        "slurmplugins/power_save/suspend.py",
        "suspend ends what is over",
        "        if not machine.state.over\n    )",
        "    )",
        DECIDED,
    ),
    Mutant(
        "slurmplugins/power_save/prepare.py",
        "an old list is planned on",
        "- at > FRESH_SECONDS:",
        "- at > 1e12:",
        GOING_ON,
    ),
    Mutant(
        "slurmplugins/power_save/prepare.py",
        "a list stays fresh four times as long",
        "= SETTLE_SECONDS / 2",
        "= SETTLE_SECONDS * 2",
        GOING_ON,
    ),
    Mutant(
        "slurmplugins/state/journal.py",
        "a machine is condemned under its old name",
        " and claims.name(item, node) == node",
        "",
        DECIDED,
    ),
    Mutant(
        "slurmplugins/reconciler/plausibility.py",
        "machines we ended are missed",
        " - world.claims.ended.keys()",
        "",
        DECIDED,
    ),
    Mutant(
        "slurmplugins/reconciler/boot_failures.py",
        "a person's end is a boot failure",
        "{*SPOT_TAKEN, BY_A_PERSON}",
        "SPOT_TAKEN",
        DECIDED,
    ),
    Mutant(
        "slurmplugins/reconciler/boot_failures.py",
        "fine_until depends on the list's order",
        "max(until, fine.get(machine.pool, until))",
        "until",
        DECIDED,
    ),
    Mutant(
        "slurmplugins/power_save/circuit_breaker.py",
        "one outweighed failure forgives all",
        "if any(_counts(item, boots) for item in standing.last)",
        "if all(_counts(item, boots) for item in standing.last)",
        DECIDED,
    ),
    Mutant(
        "slurmplugins/power_save/circuit_breaker.py",
        "the oldest failures are kept",
        "[-KEPT:]",
        "[:KEPT]",
        DECIDED,
    ),
    Mutant(
        "slurmplugins/reconciler/rules.py",
        "the first machine's health is judged",
        "min(case.live, key=lambda item: item.id != node.instance_id)",
        "case.live[0]",
        DECIDED,
    ),
    Mutant(
        "slurmplugins/node/agent.py",
        "a job that starts before the drain is never asked",
        "self.all_asked = complete and drained",
        "self.all_asked = complete",
        GOING_ON,
    ),
    Mutant(
        "slurmplugins/execution/termination.py",
        "a fruitful round counts as a try",
        "fruitless += len(over) == before",
        "fruitless += 1",
        GOING_ON,
    ),
    Mutant(
        "slurmplugins/execution/termination.py",
        "END_SECONDS has no effect",
        "if self._clock.monotonic() >= deadline:",
        "if self._clock.monotonic() >= deadline + 1e12:",
        GOING_ON,
    ),
    Mutant(
        "slurmplugins/launch/pool_launch.py",
        "success does not forget a setback",
        "self._memory.forget(item)",
        "self._memory.setbacks()",
        GOING_ON,
    ),
    Mutant(
        "slurmplugins/reconciler/run.py",
        "jobs are brought back on a view that is not believed",
        "    if not plan.note:\n        _bring_back",
        "    if True:\n        _bring_back",
        GOING_ON,
    ),
    Mutant(
        "slurmplugins/execution/executor.py",
        "halves are not looked at anew",
        "[_fitting(half, fit) for half in",
        "[half for half in",
        GOING_ON,
    ),
    Mutant(
        "slurmplugins/execution/job_notices.py",
        "one refused comment ends the telling of all",
        'except SlurmRefused as error:\n            self._log.warning("comment failed"',
        'except KeyError as error:\n            self._log.warning("comment failed"',
        GOING_ON,
    ),
    Mutant(
        "slurmplugins/cloud/ec2.py",
        "the same id twice in a fleet's answer",
        " or len(set(ids)) < len(ids)",
        "",
        SENT,
    ),
    Mutant(
        "slurmplugins/cloud/rate_limit.py",
        "a large call waits longer than for a full bucket",
        "tokens = min(wanted, self._burst)",
        "tokens = wanted",
        SENT,
    ),
    Mutant(
        "toolkit/training/checkpoint/manifest.py",
        "shards' names not fsynced before the manifest",
        "    fsync_directory(folder)  # makes",
        "    # makes",
        COMMITTED,
    ),
    Mutant(
        "toolkit/training/attempt/fencing.py",
        "ESTALE is no longer taken over",
        "errno.ENOTDIR, errno.ESTALE)",
        "errno.ENOTDIR)",
        OWNED,
    ),
    Mutant(
        "toolkit/training/requeue/end_of_attempt.py",
        "an empty second look replaces the first",
        "        if not later_facts.nodes:\n            return diagnosis, facts\n",
        "",
        ENDED,
    ),
    Mutant(
        "toolkit/training/requeue/end_of_attempt.py",
        "the verdict's step is ignored",
        "max(self._next_step(record), ranks_verdict.step if ranks_verdict else 0)",
        "self._next_step(record)",
        ENDED,
    ),
    Mutant(
        "toolkit/training/checkpoint/replication.py",
        "half-done uploads stay for ever",
        "for name in (*unfinished_names, *names):",
        "for name in names:",
        TIERS,
    ),
    Mutant(
        STACK_J2,
        "IAM: another cluster's machines may be ended",
        END_OURS,
        END_OURS.replace("{{ cluster }}", "another"),
        STACK,
    ),
    Mutant(
        STACK_J2,
        "IAM: launches with another cluster's tag",
        'Condition: {StringEquals: {"aws:RequestTag/toolkit:cluster": {{ cluster }}}}',
        'Condition: {StringEquals: {"aws:RequestTag/toolkit:cluster": another}}',
        STACK,
    ),
    Mutant(
        STACK_J2,
        "IAM: any tag while launching",
        "                    aws:RequestTag/toolkit:cluster: {{ cluster }}\n"
        "                    ec2:CreateAction",
        "                    ec2:CreateAction",
        STACK,
    ),
    Mutant(
        "slurmplugins/slurm/node_queries.py",
        "a pause before the first try",
        "        if again:\n            clock",
        "        if True:\n            clock",
        UNIT,
        "one second more before an answer",
    ),
    Mutant(
        "slurmplugins/launch/fallback.py",
        "spot's share, exactly reached",
        "after.spot <= after.total",
        "after.spot < after.total",
        POLICY,
        "one machine at an exact boundary of a float",
    ),
)
