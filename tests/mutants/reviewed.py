"""Mutants made by hand.

All but two are a reviewer's, and no unit test noticed them then. The two of the launch budget that
name it were written with their tests.
"""

from __future__ import annotations

from dataclasses import dataclass

UNIT = ("tests/unit/slurmplugins",)
SENT = (
    "tests/golden/launch",
    "tests/unit/slurmplugins/launch/test_launch_call.py",
    "tests/property/engine/test_launch_laws.py",
)
BUDGET = ("tests/unit/slurmplugins/state/test_launch_budget.py",)
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
STACK = ("tests/unit/deploy/test_role_policies.py",)


@dataclass(frozen=True)
class Mutant:
    """A change: `old`, which must be in the file once, becomes `new`."""

    path: str
    what: str
    old: str
    new: str
    tests: tuple[str, ...]
    equivalent: str = ""
    """The reason for which the change has no effect that anyone may rely on."""


BUDGET_PY = "slurmplugins/state/launch_budget.py"
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
    Mutant(
        SPEC,
        "events that are over drain nodes",
        ".startswith(_PAST_EVENT)",
        ".startswith(())",
        SENT,
    ),
    Mutant(
        POLICY_PY,
        "no reservation in spot-first",
        "return [*reservations, *spot, *on_demand]",
        "return [*spot, *on_demand]",
        POLICY,
    ),
    Mutant(
        POLICY_PY,
        "no reservation in on-demand-only",
        "return [*reservations, *on_demand]",
        "return on_demand",
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
        "[] if item.reservation else [*open_groups, groups[-1]]",
        "[*open_groups, groups[-1]]",
        POLICY,
    ),
    Mutant(POLICY_PY, "an unknown price is cheapest", "return not price,", "return False,", POLICY),
    Mutant(
        "slurmplugins/launch/fallback.py",
        "ended machines count in max_spot_share",
        "if instance.state.live:",
        "if instance:",
        POLICY,
    ),
    Mutant(
        BUDGET_PY,
        "the launch budget is never exceeded",
        "    if history.started + node_count > history.budget:",
        "    if False:",
        BUDGET,
    ),
    Mutant(
        BUDGET_PY,
        "a job that comes back an hour later has a new budget",
        "    node_requests = [",
        "    if now - history.at > 3600:\n        history = LaunchHistory(asked=0, since=now)\n"
        "    node_requests = [",
        BUDGET,
    ),
    Mutant(
        "slurmplugins/power_save/planner.py",
        "a job whose adopted node is up is given back",
        "    awaited_nodes |= up_nodes.intersection(item.node for item in plan.adoptions)\n",
        "",
        DECIDED,
    ),
    Mutant(
        "slurmplugins/power_save/suspend.py",
        "suspend ends what is over",
        "        if not instance.state.terminated\n    )",
        "    )",
        DECIDED,
    ),
    Mutant(
        "slurmplugins/power_save/prepare.py",
        "an old list is planned on",
        "- listed_at > FRESH_SECONDS:",
        "- listed_at > 1e12:",
        GOING_ON,
    ),
    Mutant(
        "slurmplugins/power_save/prepare.py",
        "a list stays fresh four times as long",
        "= LISTING_DELAY_SECONDS / 2",
        "= LISTING_DELAY_SECONDS * 2",
        GOING_ON,
    ),
    Mutant(
        "slurmplugins/state/journal.py",
        "a machine is condemned under its old name",
        "                and view.current_node(instance_id, node) == node\n",
        "",
        DECIDED,
    ),
    Mutant(
        "slurmplugins/reconciler/snapshot.py",
        "instances that we terminated are missed",
        " - journal.termination_causes.keys()",
        "",
        DECIDED,
    ),
    Mutant(
        "slurmplugins/reconciler/boot_failures.py",
        "an instance that a person terminated is a boot failure",
        "{*SPOT_INTERRUPTION_CODES, USER_SHUTDOWN_CODE}",
        "SPOT_INTERRUPTION_CODES",
        DECIDED,
    ),
    Mutant(
        "slurmplugins/reconciler/boot_failures.py",
        "a pool's deadline depends on the list's order",
        "max(deadline, deadlines.get(instance.pool, deadline))",
        "deadline",
        DECIDED,
    ),
    Mutant(
        "slurmplugins/power_save/circuit_breaker.py",
        "one outweighed failure forgives all",
        "if any(_counts_against_pool(item, boots) for item in breaker_state.last)",
        "if all(_counts_against_pool(item, boots) for item in breaker_state.last)",
        DECIDED,
    ),
    Mutant(
        "slurmplugins/power_save/circuit_breaker.py",
        "the oldest failures are kept",
        "[-MAX_SHOWN:]",
        "[:MAX_SHOWN]",
        DECIDED,
    ),
    Mutant(
        "slurmplugins/reconciler/rules.py",
        "the first instance's health is judged",
        "min(state.live_instances, key=lambda item: item.id != node.instance_id)",
        "state.live_instances[0]",
        DECIDED,
    ),
    Mutant(
        "slurmplugins/node/agent.py",
        "a job that starts before the drain is never asked",
        "self.all_stops_requested = all_written and drained",
        "self.all_stops_requested = all_written",
        GOING_ON,
    ),
    Mutant(
        "slurmplugins/execution/termination.py",
        "a fruitful round counts as a try",
        "fruitless_rounds += len(terminated_ids) == terminated_before",
        "fruitless_rounds += 1",
        GOING_ON,
    ),
    Mutant(
        "slurmplugins/execution/termination.py",
        "TERMINATE_SECONDS has no effect",
        "if self._clock.monotonic() >= deadline:",
        "if self._clock.monotonic() >= deadline + 1e12:",
        GOING_ON,
    ),
    Mutant(
        "slurmplugins/launch/launcher.py",
        "success leaves the offering unavailable",
        "self._unavailable_offerings.mark_available(item)",
        "self._unavailable_offerings.entries()",
        GOING_ON,
    ),
    Mutant(
        "slurmplugins/reconciler/run.py",
        "jobs are requeued on a snapshot that is not trusted",
        "    if not plan.blocked_by:\n        _requeue_jobs",
        "    if True:\n        _requeue_jobs",
        GOING_ON,
    ),
    Mutant(
        "slurmplugins/execution/slurm_calls.py",
        "halves are not looked at anew",
        "[self._valid(half) for half in",
        "[half for half in",
        GOING_ON,
    ),
    Mutant(
        "slurmplugins/execution/job_notices.py",
        "one refused comment ends the notices of all",
        "except SlurmRefused as error:\n            self._log.warning(LogEvent.JOB_COMMENT_FAILED",
        "except KeyError as error:\n            self._log.warning(LogEvent.JOB_COMMENT_FAILED",
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
        "tokens = min(amount, self._burst)",
        "tokens = amount",
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
        "                    aws:RequestTag/toolkit:cluster: {{ cluster }}\n",
        "                    aws:RequestTag/toolkit:cluster: another\n",
        STACK,
    ),
    Mutant(
        STACK_J2,
        "IAM: any tag while launching",
        "                  StringEquals: {{ our_tags() }}\n                    ec2:CreateAction",
        "                  StringEquals:\n                    ec2:CreateAction",
        STACK,
    ),
    Mutant(
        "slurmplugins/launch/fallback.py",
        "spot's share, exactly reached",
        "spend_with_spot.spot <= spend_with_spot.total",
        "spend_with_spot.spot < spend_with_spot.total",
        POLICY,
        "one machine at an exact boundary of a float",
    ),
)
