"""Explains a node's state. Pure: facts in, answer out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from toolkit.explain import reasons
from toolkit.explain.answer import Answer, format_decision, format_duration, format_time
from toolkit.explain.tries import launch_results

if TYPE_CHECKING:
    from slurmplugins.head.report import BreakerReport, HeadReport, InstanceReport, NodeReport

# Flags of a node → its state, and the next event. The first row that fits counts.
_STATES: Final = (
    ({"POWERING_DOWN"}, "powering down", "usable again as soon as its machine is gone"),
    (
        {"POWERED_DOWN", "DOWN"},
        "off, and down",
        "reconcile gives it back within seconds of its machine's end",
    ),
    (
        {"POWERED_DOWN"},
        "off: no machine, and none is needed",
        "Slurm asks for one when a job needs it",
    ),
    ({"DOWN"}, "down", "it is powered down, and then usable again"),
    (
        {"DRAIN"},
        "draining: nothing new starts there",
        "it is powered down when its jobs have left",
    ),
)


def explain(report: HeadReport, name: str) -> Answer:
    """Return the answer for one node.

    There is an answer also when Slurm knows none of that name.
    """
    node = next((item for item in report.nodes if item.name == name), None)
    if node is None:
        unknown_verdict = (
            "not known: Slurm could not be asked" if report.unread else "Slurm knows no such node"
        )
        return Answer(f"node {name}", unknown_verdict, unread=report.unread)
    instances = [item for item in report.machines if item.node == name]
    live_instances = [item for item in instances if item.state in {"pending", "running"}]
    standing = next((item for item in report.standings if item.pool == node.pool), None)
    verdict, next_event = _state_and_next(node, live_instances)
    evidence = [f"Slurm: {'+'.join(node.flags).lower()}"]
    if node.reason:
        evidence.append(f"reason: {node.reason}{_meaning_text(node.reason)}")
    evidence += [_instance_line(item, report.at) for item in instances]
    evidence += [
        f"job {job.id} ({job.name}, {job.user}) is on it"
        for job in report.jobs
        if name in job.nodes
    ]
    if standing is not None and standing.failures:
        evidence += _breaker_lines(standing)
        if standing.protected_since is not None:
            next_event = f"{format_time(standing.retry_at)}: one job may try the pool again"
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
        return "not the toolkit's: burst.json does not name it, and nothing here touches it", ""
    if flags & {"DRAIN", "DOWN"} and not (
        node.reason.startswith(reasons.OWN_PREFIX) or _is_slurms_reason(node.reason)
    ):
        return "held by a person: the toolkit leaves it alone", (
            f"`scontrol update nodename={node.name} state=resume` gives it back"
        )
    if flags & {"POWERING_UP", "POWER_UP"} and "DOWN" not in flags:
        state = (
            f"its machine is {live_instances[0].state}"
            if live_instances
            else "it has no machine yet"
        )
        return f"coming up: {state}", "it registers, or is given back at ResumeTimeout"
    for required_flags, verdict, next_event in _STATES:
        if required_flags <= flags:
            return verdict, next_event
    if not live_instances:
        return "up for Slurm, with no machine", "reconcile sets it down when a grace has passed"
    job_flags = flags & {"ALLOCATED", "MIXED", "COMPLETING"}
    next_event = "static: it stays" if node.static else "Slurm powers it down when idle"
    return ("up, with jobs", "") if job_flags else ("up and idle", next_event)


def _meaning_text(reason: str) -> str:
    meaning = reasons.meaning(reason)
    return f" ({meaning})" if meaning else ""


def _is_slurms_reason(reason: str) -> bool:
    return "ResumeTimeout reached" in reason or reason.startswith("Not responding")


def _instance_line(item: InstanceReport, now: float) -> str:
    end_text = f", {item.end_code}" if item.end_code else ""
    trouble = "".join(f"; it {text}" for text in item.trouble)
    return (
        f"machine {item.id}: {item.state}{end_text}, {item.type} {item.lifecycle} in {item.zone},"
        f" launched {format_duration(now - item.launched_at)} ago{trouble}"
    )


def _breaker_lines(standing: BreakerReport) -> list[str]:
    state = "is protected" if standing.protected_since is not None else "is open"
    instance_count = (
        "1 machine" if standing.failures == 1 else f"{standing.failures} machines in a row"
    )
    heading = f"pool {standing.pool} {state}: {instance_count} did not come up"
    return [heading, *(f"  {line}" for line in standing.last)]
