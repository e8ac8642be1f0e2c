"""Explains a node's state. Pure: facts in, answer out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from toolkit.explain import reasons
from toolkit.explain.answer import Answer, moment, span, told
from toolkit.explain.tries import tries

if TYPE_CHECKING:
    from slurmplugins.head.report import HeadReport, InstanceReport, NodeReport, StandingReport

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


def explain(sheet: HeadReport, name: str) -> Answer:
    """Return the answer for one node.

    There is an answer also when Slurm knows none of that name.
    """
    node = next((item for item in sheet.nodes if item.name == name), None)
    if node is None:
        known = (
            "not known: Slurm could not be asked" if sheet.unread else "Slurm knows no such node"
        )
        return Answer(f"node {name}", known, unread=sheet.unread)
    machines = [item for item in sheet.machines if item.node == name]
    live = [item for item in machines if item.state in {"pending", "running"}]
    standing = next((item for item in sheet.standings if item.pool == node.pool), None)
    verdict, then = _verdict(node, live)
    because = [f"Slurm: {'+'.join(node.flags).lower()}"]
    if node.reason:
        because.append(f"reason: {node.reason}{_in_words(node.reason)}")
    because += [_described(item, sheet.at) for item in machines]
    because += [
        f"job {job.id} ({job.name}, {job.user}) is on it" for job in sheet.jobs if name in job.nodes
    ]
    if standing is not None and standing.failures:
        because += _told_standing(standing)
        if standing.protected_since is not None:
            then = f"{moment(standing.retry_at)}: one job may try the pool again"
    console = next(reversed(list(sheet.consoles.values())), ())
    return Answer(
        subject=f"node {name}",
        verdict=verdict,
        because=tuple(because),
        tried=tries(sheet.decisions),
        next=then,
        decisions=tuple(told(item) for item in sheet.decisions),
        console=tuple(console),
        unread=sheet.unread,
    )


def _verdict(node: NodeReport, live: list[InstanceReport]) -> tuple[str, str]:
    """Return the node's state and its next event."""
    flags = set(node.flags)
    if not node.pool:
        return "not the toolkit's: burst.json does not name it, and nothing here touches it", ""
    if flags & {"DRAIN", "DOWN"} and not (
        node.reason.startswith(reasons.OURS) or _slurms(node.reason)
    ):
        return "held by a person: the toolkit leaves it alone", (
            f"`scontrol update nodename={node.name} state=resume` gives it back"
        )
    if flags & {"POWERING_UP", "POWER_UP"} and "DOWN" not in flags:
        state = f"its machine is {live[0].state}" if live else "it has no machine yet"
        return f"coming up: {state}", "it registers, or is given back at ResumeTimeout"
    for wanted, verdict, then in _STATES:
        if wanted <= flags:
            return verdict, then
    if not live:
        return "up for Slurm, with no machine", "reconcile sets it down when a grace has passed"
    busy = flags & {"ALLOCATED", "MIXED", "COMPLETING"}
    then = "static: it stays" if node.static else "Slurm powers it down when idle"
    return ("up, with jobs", "") if busy else ("up and idle", then)


def _in_words(reason: str) -> str:
    meaning = reasons.meaning(reason)
    return f" ({meaning})" if meaning else ""


def _slurms(reason: str) -> bool:
    return "ResumeTimeout reached" in reason or reason.startswith("Not responding")


def _described(item: InstanceReport, now: float) -> str:
    end = f", {item.end_code}" if item.end_code else ""
    trouble = "".join(f"; it {text}" for text in item.trouble)
    return (
        f"machine {item.id}: {item.state}{end}, {item.type} {item.lifecycle} in {item.zone},"
        f" launched {span(now - item.launched_at)} ago{trouble}"
    )


def _told_standing(standing: StandingReport) -> list[str]:
    word = "is protected" if standing.protected_since is not None else "is open"
    machines = "1 machine" if standing.failures == 1 else f"{standing.failures} machines in a row"
    first = f"pool {standing.pool} {word}: {machines} did not come up"
    return [first, *(f"  {line}" for line in standing.last)]
