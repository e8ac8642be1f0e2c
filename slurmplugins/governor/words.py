"""A decision as people read it: `stays: racks expected in 12 m; cloud would cost up to 41 USD`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from slurmplugins.governor.decide import Reason

if TYPE_CHECKING:
    from slurmplugins.governor.decide import Decision

NOTE_PREFIX: Final = "toolkit:burst"
"""Begins our lines in a job's AdminComment."""

_BURSTS: Final = {
    Reason.AGE: "it has waited {waited} for racks",
    Reason.DEADLINE: "racks would finish it after its deadline",
    Reason.RACKS_LACK: "no node of {rack} can ever run it",
}
_STAYS: Final = {
    Reason.HELD: "it is held",
    Reason.NOT_ELIGIBLE: "it waits for its begin time, a dependency or its array's limit",
    Reason.LIMITS: "a limit keeps it, in the cloud as well: {detail}",
    Reason.HET_JOB: "it is a het job, whose components start together",
    Reason.INTERACTIVE: "it is no batch job, and could not be requeued if a launch failed",
    Reason.NO_REQUEUE: "its --no-requeue would end it if a launch failed",
    Reason.NODELIST: "it names its nodes",
    Reason.RESERVATION: "it waits for a reservation of {rack}",
    Reason.LICENSES: "it needs licenses, which are the site's",
    Reason.CONSTRAINT: "its constraint is more than a list of features",
    Reason.UNDONE: "somebody took {cloud} away from it again",
    Reason.SLURM_REFUSED: "Slurm refused the change: {detail}",
    Reason.CLOUD_REFUSED: "its last start failed before it ran; it is tried again in some minutes",
    Reason.NO_BUDGET: "account {account} has no burst budget",
    Reason.QOS: "its QOS may not burst",
    Reason.CLOUD_PROBLEM: "the cloud launches nothing now: {detail}",
    Reason.CLOUD_FIRST: "{cloud} has a higher PriorityTier or PriorityJobFactor than {rack}",
    Reason.CLOUD_LACKS: "no node of {cloud} fits it, or {cloud} does not admit it",
    Reason.NO_TIME_LIMIT: "it has no time limit, so its cost has no bound",
    Reason.CLOUD_TIME_LIMIT: "its time limit is above that of {cloud}",
    Reason.PRICE_UNKNOWN: "the price of its cloud nodes is not known",
    Reason.DATA_UNKNOWN: "its data is on site, and its comment has no site-data=SIZE",
    Reason.CLOUD_LATE: "the cloud would finish it after its deadline, too",
    Reason.YOUNG: "it has waited {waited} of {after}",
    Reason.RACKS_SOON: "racks expected in {expected}",
    Reason.OVER_BUDGET: "account {account} has {remaining} USD left in this month",
}
LASTING: Final = frozenset(_STAYS) - {Reason.YOUNG, Reason.RACKS_SOON, Reason.NOT_ELIGIBLE}
"""Reasons that a researcher should read in the job's comment: waiting alone changes none."""
_COSTED: Final = frozenset({Reason.YOUNG, Reason.RACKS_SOON, Reason.OVER_BUDGET})


def sentence(decision: Decision) -> str:
    """Return the decision with its figures."""
    words = {**_BURSTS, **_STAYS}[decision.reason].format(**_figures(decision))
    if decision.bursts:
        return f"may burst: {words}; {decision.cloud} costs at most {_usd(decision)}"
    if decision.reason in _COSTED and decision.cost is not None:
        words += f"; cloud would cost up to {_usd(decision)}"
        if decision.data_seconds:
            words += f", its data {duration(decision.data_seconds)} to move"
    return f"stays: {words}"


def note(decision: Decision) -> str:
    """Return the line for the job's AdminComment, or nothing.

    It has no figure that changes from pass to pass, or each pass would write again.
    """
    if decision.bursts:
        return f"{NOTE_PREFIX} {decision.reason}: may start in {decision.cloud}; at most " + _usd(
            decision
        )
    if decision.reason not in LASTING:
        return ""
    if decision.reason is Reason.OVER_BUDGET:
        words = f"account {decision.account} has less left than {_usd(decision)}"
    else:
        words = _STAYS[decision.reason].format(**_figures(decision))
    return f"{NOTE_PREFIX} stays, {decision.reason}: {words}"


def duration(seconds: float) -> str:
    """Return a duration such as `12 m` or `3 h 10 m`."""
    whole = max(0, int(seconds))
    minutes, hours = whole // 60, whole // 3600
    if not minutes:
        return f"{whole} s"
    return f"{hours} h {minutes % 60} m" if hours else f"{minutes} m"


def _figures(decision: Decision) -> dict[str, str]:
    return {
        "waited": duration(decision.waited),
        "after": duration(decision.after or 0.0),
        "expected": duration(decision.expected_in or 0.0),
        "remaining": f"{decision.remaining_usd:.2f}",
        "rack": decision.rack,
        "cloud": decision.cloud,
        "account": decision.account,
        "detail": decision.detail,
    }


def _usd(decision: Decision) -> str:
    return "an unknown amount" if decision.cost is None else f"{decision.cost.usd:.2f} USD"
