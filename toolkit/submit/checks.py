"""Checks a submission before Slurm gets it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Final, Self

from slurmplugins.config.paths import SCRATCH
from toolkit.lint.batch_script import script as batch_script
from toolkit.lint.batch_script.check import check_script as lint
from toolkit.lint.finding import Finding, Severity
from toolkit.submit.errors import SlurmRefused
from toolkit.training.run_folder import stop_forecast

if TYPE_CHECKING:
    from collections.abc import Sequence

    from toolkit.submit.plan import Plan
    from toolkit.submit.slurm_client import SlurmClient
    from toolkit.training.run_folder.stop_forecast import MeasuredForecast, StopForecast

_PINNED_IMAGE: Final = re.compile(r"[^@\s]+@sha256:[0-9a-f]{64}")
# lib/preflight.sh alone only finds the image; these start a step in it.
_IN_CONTAINER: Final = re.compile(r"\brun_workers\b|\bCONTAINER\[@\]|\bTOOLKIT_CONTAINER\b")
_STEP_SECONDS: Final = 1.0
"""Assumed seconds of a step, if no run has measured it."""


UNKNOWN_STOP: Final = (
    "the time of a stop is unknown, as no earlier run of this kind measured it:"
    " give --checkpoint-gib for a forecast, or read this job's log after its first save"
)


@dataclass(frozen=True, slots=True)
class StopEstimate:
    """A forecast of a stop's duration, and its source."""

    forecast: StopForecast
    source: str

    @classmethod
    def from_size(cls, gib: float, gib_per_second: float) -> Self:
        """Forecast from the caller's figures of a checkpoint."""
        seconds = gib / gib_per_second
        forecast = stop_forecast.forecast(
            step_seconds=_STEP_SECONDS,
            in_flight_seconds=seconds,
            save_seconds=seconds,
            saved_bytes=round(gib * 2**30),
        )
        return cls(forecast, f"{gib:g} GiB at {gib_per_second:g} GiB/s")

    @classmethod
    def from_run(cls, measured: MeasuredForecast) -> Self:
        """Forecast from the measurements of an earlier run."""
        ranks = f"{measured.world_size} rank{'s' if measured.world_size > 1 else ''}"
        return cls(measured.forecast, f"measured by job {measured.job_id} on {ranks}")

    def __str__(self) -> str:
        seconds, notice = self.forecast.seconds, stop_forecast.NOTICE_SECONDS
        return f"a stop would take {seconds:.0f} s of a spot notice's {notice:.0f} ({self.source})"


def findings(
    plan: Plan, text: str, slurm: SlurmClient, *, user: str, stop: StopEstimate | None
) -> tuple[Finding, ...]:
    """Return all findings about the submission, errors first."""
    stop_seconds = stop.forecast.seconds if stop else None
    # Other sites may share /scratch; on this cluster each instance has its own.
    all_findings = [*lint(text, stop_seconds, plan.outside_options, node_disks=(str(SCRATCH),))]
    all_findings += _name_findings(plan, slurm, user)
    all_findings += [*_container_findings(plan, text), *_stop_findings(stop)]
    if not any(finding.slug in ("partition", "account") for finding in all_findings):
        all_findings += _test_only_findings(plan, slurm)
    return tuple(sorted(all_findings, key=lambda finding: finding.severity is not Severity.ERROR))


def _name_findings(plan: Plan, slurm: SlurmClient, user: str) -> list[Finding]:
    name_findings = []
    if plan.partition:
        known_names = slurm.partitions()
        unknown_names = [name for name in plan.partition.split(",") if name not in known_names]
        name_findings += [_unknown_name("partition", name, known_names) for name in unknown_names]
    if plan.account:
        known_names = slurm.accounts(user)
        # Without accounting there are no associations, and nothing to check against.
        if known_names and plan.account not in known_names:
            name_findings.append(_unknown_name("account", plan.account, known_names))
    return name_findings


def _unknown_name(kind: str, name: str, known_names: Sequence[str]) -> Finding:
    matches = get_close_matches(name, known_names, n=1)
    fix = f"--{kind}={matches[0]}" if matches else f"use one of {', '.join(known_names)}"
    return Finding(kind, Severity.ERROR, 0, f"there is no {kind} {name!r} for this job", fix)


def _container_findings(plan: Plan, text: str) -> list[Finding]:
    errors = []
    if plan.container and not _PINNED_IMAGE.fullmatch(plan.container):
        message = f"the container {plan.container!r} is not pinned: its tag may move"
        fix = "IMAGE@sha256:…, as `skopeo inspect --format {{.Digest}} docker://IMAGE` prints it"
        errors.append(Finding("container-not-pinned", Severity.ERROR, 0, message, fix))
    commands = batch_script.parse(text).commands
    if plan.container and not any(_IN_CONTAINER.search(command.text) for command in commands):
        message = "the script starts nothing in TOOLKIT_CONTAINER: its workers would run outside"
        fix = "remove --container, or start them with run_workers: jobscripts/torchrun.sbatch"
        errors.append(Finding("container-unheard", Severity.ERROR, 0, message, fix))
    return errors


def _stop_findings(stop: StopEstimate | None) -> list[Finding]:
    problem = stop.forecast.problem() if stop else None
    if stop is None or problem is None:
        return []
    text = f"{problem} ({stop.source})"
    return [Finding("stop-too-slow", Severity.WARNING, 0, text, stop.forecast.advice())]


def _test_only_findings(plan: Plan, slurm: SlurmClient) -> list[Finding]:
    try:
        slurm.test_submission(plan.argv)
    except SlurmRefused as error:
        text = f"Slurm would refuse the job: {error.message}"
        return [Finding("slurm", Severity.ERROR, 0, text, "request what the partition has")]
    return []
