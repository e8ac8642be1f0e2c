"""Checks a submission before Slurm gets it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Final, Self

from slurmplugins.config.paths import SCRATCH
from toolkit.lint.batch_script import script as batch_script
from toolkit.lint.batch_script.check import check as lint
from toolkit.lint.finding import Finding, Severity
from toolkit.submit.errors import SlurmRefused
from toolkit.training.run_folder import stop_forecast

if TYPE_CHECKING:
    from collections.abc import Sequence

    from toolkit.submit.plan import Plan
    from toolkit.submit.slurm_client import SlurmSide
    from toolkit.training.run_folder.stop_forecast import Measured, StopForecast

_PINNED: Final = re.compile(r"[^@\s]+@sha256:[0-9a-f]{64}")
# lib/preflight.sh alone only finds the image; these start a step in it.
_IN_CONTAINER: Final = re.compile(r"\brun_workers\b|\bCONTAINER\[@\]|\bTOOLKIT_CONTAINER\b")
_STEP: Final = 1.0
"""Assumed seconds of a step, if no run has measured it."""


UNKNOWN_STOP: Final = (
    "what a stop would take of a spot notice is not known: no earlier run like this one tells;"
    " --checkpoint-gib predicts it, and the log of this job says it after the first save"
)


@dataclass(frozen=True, slots=True)
class Stop:
    """A forecast of a stop's duration, and its source."""

    forecast: StopForecast
    source: str

    @classmethod
    def of_size(cls, gib: float, gib_per_second: float) -> Self:
        """Forecast from the caller's figures of a checkpoint."""
        seconds = gib / gib_per_second
        forecast = stop_forecast.forecast(
            step_seconds=_STEP,
            in_flight_seconds=seconds,
            save_seconds=seconds,
            saved_bytes=round(gib * 2**30),
        )
        return cls(forecast, f"{gib:g} GiB at {gib_per_second:g} GiB/s")

    @classmethod
    def of_run(cls, found: Measured) -> Self:
        """Forecast from the measurements of an earlier run."""
        ranks = f"{found.world_size} rank{'s' if found.world_size > 1 else ''}"
        return cls(found.forecast, f"measured by job {found.job_id} on {ranks}")

    def __str__(self) -> str:
        took, notice = self.forecast.seconds, stop_forecast.NOTICE
        return f"a stop would take {took:.0f} s of a spot notice's {notice:.0f} ({self.source})"


def findings(
    plan: Plan, text: str, slurm: SlurmSide, *, user: str, stop: Stop | None
) -> tuple[Finding, ...]:
    """Return all findings about the submission, errors first."""
    takes = stop.forecast.seconds if stop else None
    # Other sites may share /scratch; on this cluster each instance has its own.
    found = [*lint(text, takes, plan.outside, node_disks=(str(SCRATCH),))]
    found += [*_names(plan, slurm, user), *_container(plan, text), *_stop_in_time(stop)]
    if not any(one.slug in ("partition", "account") for one in found):
        found += _rehearsed(plan, slurm)
    return tuple(sorted(found, key=lambda one: one.severity is not Severity.ERROR))


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


def _container(plan: Plan, text: str) -> list[Finding]:
    found = []
    if plan.container and not _PINNED.fullmatch(plan.container):
        said = f"the container {plan.container!r} is not pinned: its tag may be another tomorrow"
        fix = "IMAGE@sha256:…, as `skopeo inspect --format {{.Digest}} docker://IMAGE` prints it"
        found.append(Finding("container-not-pinned", Severity.ERROR, 0, said, fix))
    commands = batch_script.parse(text).commands
    if plan.container and not any(_IN_CONTAINER.search(one.text) for one in commands):
        said = "the script starts nothing in TOOLKIT_CONTAINER: it would run outside of it"
        fix = "give this job none, or start its step by run_workers, as jobscripts/torchrun.sbatch"
        found.append(Finding("container-unheard", Severity.ERROR, 0, said, fix))
    return found


def _stop_in_time(stop: Stop | None) -> list[Finding]:
    problem = stop.forecast.problem() if stop else None
    if stop is None or problem is None:
        return []
    text = f"{problem} ({stop.source})"
    return [Finding("stop-too-slow", Severity.WARNING, 0, text, stop.forecast.advice())]


def _rehearsed(plan: Plan, slurm: SlurmSide) -> list[Finding]:
    try:
        slurm.rehearse(plan.argv)
    except SlurmRefused as error:
        text = f"Slurm would not take it: {error.message}"
        return [Finding("slurm", Severity.ERROR, 0, text, "ask for what the partition has")]
    return []
