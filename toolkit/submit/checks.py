"""What is wrong with a submission before it is one."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Final

from toolkit.lint.check import check as lint
from toolkit.lint.finding import Finding, Severity
from toolkit.submit.errors import SlurmRefused

if TYPE_CHECKING:
    from collections.abc import Sequence

    from toolkit.submit.plan import Plan
    from toolkit.submit.slurm_side import SlurmSide

NOTICE: Final = 120.0
"""Seconds that EC2 gives before it takes a spot machine."""

AROUND_SAVE: Final = 20.0
"""Of those, what passes before the save begins and after it ends: noticing, two steps, the exit."""


@dataclass(frozen=True, slots=True)
class Save:
    """What a checkpoint is made of: its size, and how fast the filesystem takes it."""

    gib: float
    gib_per_second: float

    @property
    def seconds(self) -> float:
        """From the notice to the exit."""
        return AROUND_SAVE + self.gib / self.gib_per_second


def findings(
    plan: Plan, text: str, slurm: SlurmSide, *, user: str, save: Save | None
) -> tuple[Finding, ...]:
    """Everything known against the submission, what would lose work first."""
    given = {one.option for one in plan.added}
    mended = {slug for option, slug in _MENDED if option in given}
    found = [one for one in lint(text) if one.slug not in mended]
    found += [*_names(plan, slurm, user), *_stop_in_time(save)]
    if not any(one.slug in ("partition", "account") for one in found):
        found += _rehearsed(plan, slurm)
    return tuple(sorted(found, key=lambda one: one.severity is not Severity.ERROR))


# What an option on the command line puts right in the script.
_MENDED: Final = (("--requeue", "requeue-unsaid"), ("--open-mode=append", "open-mode"))


def _names(plan: Plan, slurm: SlurmSide, user: str) -> list[Finding]:
    found = []
    if plan.partition:
        known = slurm.partitions()
        unknown = [name for name in plan.partition.split(",") if name not in known]
        found += [_unknown("partition", name, known) for name in unknown]
    if plan.account:
        known = slurm.accounts(user)
        # Without accounting there are no associations, and nothing to check against.
        if known and plan.account not in known:
            found.append(_unknown("account", plan.account, known))
    return found


def _unknown(what: str, name: str, known: Sequence[str]) -> Finding:
    near = get_close_matches(name, known, n=1)
    fix = f"--{what}={near[0]}" if near else f"one of {', '.join(known)}"
    return Finding(what, Severity.ERROR, 0, f"there is no {what} {name!r} for this job", fix)


def _stop_in_time(save: Save | None) -> list[Finding]:
    if save is None or save.seconds <= NOTICE:
        return []
    enough = save.gib / (NOTICE - AROUND_SAVE)
    return [
        Finding(
            "stop-too-slow",
            Severity.WARNING,
            0,
            f"a stop takes {save.seconds:.0f} s and a spot notice gives {NOTICE:.0f}",
            f"write at {enough:.1f} GiB/s or more (each rank its shard), or ask for on-demand",
        )
    ]


def _rehearsed(plan: Plan, slurm: SlurmSide) -> list[Finding]:
    try:
        slurm.rehearse(plan.argv)
    except SlurmRefused as error:
        text = f"Slurm would not take it: {error.message}"
        return [Finding("slurm", Severity.ERROR, 0, text, "ask for what the partition has")]
    return []
