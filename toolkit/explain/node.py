"""Explains a node's state. Pure: facts in, answer out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from toolkit.explain import reasons
from toolkit.explain.answer import Answer, format_decision, format_duration, format_time
from toolkit.explain.launch_results import launch_results

if TYPE_CHECKING:
    from slurmplugins.head.report import BreakerReport, HeadReport, InstanceReport, NodeReport

# Flags of a node → its state, and the next event. The first row that fits counts.
_STATES: Final = (
    ({"POWERING_DOWN"}, "powering down", "the node is usable when its instance is terminated"),
    ({"POWERED_DOWN", "DOWN"}, "powered down, and set DOWN",
     "reconcile makes the node usable when its instance is terminated"),
    ({"POWERED_DOWN"}, "powered down: it has no instance, and needs none",
     "Slurm powers the node up when a job needs it"),
    ({"DOWN"}, "down", "the toolkit powers the node down; then Slurm can use it again"),
    ({"DRAIN"}, "draining: Slurm starts no new job on it",
     "the toolkit powers the node down when its jobs have ended"),
)  # fmt: skip


def explain(report: HeadReport, name: str) -> Answer:
    """Return the answer for one node.

    There is an answer also when Slurm knows none of that name.
    """
    node = next((item for item in report.nodes if item.name == name), None)
    if node is None:
        verdict = (
            "unknown: Slurm could not be read" if report.unread else "Slurm knows no such node"
        )
        return Answer(f"node {name}", verdict, unread=report.unread)
    instances = [item for item in report.machines if item.node == name]
    live_instances = [item for item in instances if item.state in {"pending", "running"}]
    breaker = next((item for item in report.standings if item.pool == node.pool), None)
    verdict, next_event = _state_and_next(node, live_instances)
    evidence = [f"Slurm: {'+'.join(node.flags).lower()}"]
    if node.reason:
        evidence.append(f"reason: {node.reason}{_meaning_text(node.reason)}")
    evidence += [_instance_line(item, report.at) for item in instances]
    jobs = [job for job in report.jobs if name in job.nodes]
    evidence += [f"job {job.id} ({job.name}, {job.user}) has the node" for job in jobs]
    if breaker is not None and breaker.failures:
        evidence += _breaker_lines(breaker)
        if breaker.protected_since is not None:
            probe = f"pool {node.pool} lets one job through as a probe"
            next_event = f"{format_time(breaker.retry_at)}: {probe}"
    console = next(reversed(list(report.consoles.values())), ())
    return Answer(
        subject=f"node {name}",
        verdict=verdict,
        because=tuple(evidence),
        tried=launch_results(report.decisions),
        next=next_event,
        decisions=tuple(format_decision(item) for item in report.decisions),
        console=tuple(console),
        unread=report.unread,
    )


def _state_and_next(node: NodeReport, live_instances: list[InstanceReport]) -> tuple[str, str]:
    """Return the node's state and its next event."""
    flags = set(node.flags)
    if not node.pool:
        return "not the toolkit's: burst.json does not name it, so the toolkit never changes it", ""
    if flags & {"DRAIN", "DOWN"} and not (
        node.reason.startswith(reasons.OWN_PREFIX) or _is_slurms_reason(node.reason)
    ):
        return (
            "drained or down, and not by the toolkit: it leaves the node alone",
            f"`scontrol update nodename={node.name} state=resume` returns it to service",
        )
    if flags & {"POWERING_UP", "POWER_UP"} and "DOWN" not in flags:
        state = f"is {live_instances[0].state}" if live_instances else "is not launched yet"
        next_event = "slurmd registers the node, or it is given back at ResumeTimeout"
        return f"powering up: its instance {state}", next_event
    for required_flags, verdict, next_event in _STATES:
        if required_flags <= flags:
            return verdict, next_event
    if not live_instances:
        return "up, but it has no instance", "reconcile sets the node DOWN after a grace time"
    idle = "the node is static and stays up" if node.static else "Slurm powers it down when idle"
    has_jobs = flags & {"ALLOCATED", "MIXED", "COMPLETING"}
    return ("up, with jobs", "") if has_jobs else ("up and idle", idle)


def _meaning_text(reason: str) -> str:
    meaning = reasons.meaning(reason)
    return f" ({meaning})" if meaning else ""


def _is_slurms_reason(reason: str) -> bool:
    return "ResumeTimeout reached" in reason or reason.startswith("Not responding")


def _instance_line(item: InstanceReport, now: float) -> str:
    end_text = f", {item.end_code}" if item.end_code else ""
    trouble = "".join(f"; it {text}" for text in item.trouble)
    return (
        f"instance {item.id}: {item.state}{end_text}, {item.type} {item.lifecycle} in {item.zone},"
        f" launched {format_duration(now - item.launched_at)} ago{trouble}"
    )


def _breaker_lines(breaker: BreakerReport) -> list[str]:
    state = "is protected" if breaker.protected_since is not None else "still launches"
    failure = f"{breaker.failures} instances in a row did not become nodes"
    if breaker.failures == 1:
        failure = "1 instance did not become a node"
    return [f"pool {breaker.pool} {state}: {failure}", *(f"  {line}" for line in breaker.last)]
