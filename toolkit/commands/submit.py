"""`toolkit submit`: checks a batch script, prints the sbatch command, and runs it."""

from __future__ import annotations

import getpass
import os
import shutil
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING

import click

from toolkit.commands.options import (
    CONFIG_VARIABLE,
    config_option,
    dry_run_option,
    json_option,
    load,
)
from toolkit.local.options import STATE_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from toolkit.commands.submit_report import Checked
    from toolkit.commands.submit_start import ChosenStart
    from toolkit.submit.checks import StopEstimate
    from toolkit.submit.errors import SubmitRefused
    from toolkit.submit.plan import Plan
    from toolkit.submit.slurm_client import SlurmClient
    from toolkit.submit.staging import ChainedJob, Staging

_OF_THE_CLI = frozenset({CONFIG_VARIABLE, STATE_VARIABLE})


def _seconds(_ctx: click.Context, _param: click.Parameter, text: str | None) -> int | None:
    """Parse a duration such as 90m."""
    import re

    from toolkit.config import types

    if text is None:
        return None
    if re.fullmatch(r"\d{1,6}[smhd]", text, re.ASCII) is None:
        raise click.BadParameter(f"{text!r}: expected a time such as 90m or 2h")
    return types.seconds(text)


@click.command(
    "submit",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@config_option
@json_option
@dry_run_option
@click.option("--force", is_flag=True, help="Submit in spite of errors.")
@click.option(
    "--user", help="Submit on the head node as this user  [default: submit on this host]."
)
@click.option(
    "--checkpoint-gib", type=float, help="Size of a checkpoint, to predict the time of a stop."
)
@click.option(
    "--write-gib-s", type=float, default=1.0, show_default=True, help="Speed of writing it."
)
@click.option(
    "--container", default="", metavar="IMAGE@sha256:…", help="Run the ranks in this container."
)
@click.option(
    "--stage-in",
    "stage_in",
    metavar="NAME=FOLDER",
    multiple=True,
    help="Copy this folder of racks to the store first. It may be repeated.",
)
@click.option(
    "--stage-out",
    "results",
    default="",
    metavar="FOLDER",
    help="Copy the run's results to this folder of racks afterwards.",
)
@click.option(
    "--racks",
    default="",
    metavar="PARTITION",
    help="Copy on nodes of this partition  [default: the first of the job's].",
)
@click.option(
    "--cloud",
    default="",
    metavar="PARTITION",
    help="Fetch results from nodes of this partition  [default: the last of the job's].",
)
@click.option(
    "--by", "by_text", metavar="TIME", help="The job must end by then: 08:00, or a date with time."
)
@click.option(
    "--cheapest", is_flag=True, help="Begin when spot is expected to be cheapest; needs --by."
)
@click.option(
    "--stage-time",
    callback=_seconds,
    metavar="TIME",
    help="With --by: how long the copies before the job take, such as 90m"
    "  [default: their folders' size at 1 Gbit/s].",
)
@click.argument(
    "words", metavar="[SBATCH-OPTION=VALUE...] SCRIPT [ARG...]", nargs=-1, required=True
)
def command(
    *,
    config_path: Path | None,
    as_json: bool,
    dry_run: bool,
    force: bool,
    user: str | None,
    checkpoint_gib: float | None,
    write_gib_s: float,
    container: str,
    stage_in: tuple[str, ...],
    results: str,
    racks: str,
    cloud: str,
    by_text: str | None,
    cheapest: bool,
    stage_time: int | None,
    words: tuple[str, ...],
) -> int:
    """Check a batch script, then submit it by sbatch.

    The checks are toolkit lint, partition, account, Slurm's own test, and whether a stop fits into
    a spot notice. The stop's time comes from --checkpoint-gib, or from the last run like this one.

    Options for sbatch go before the script, as --name=value. submit adds `--requeue` and
    `--open-mode=append`, unless the script or you say otherwise. It prints the command.

    With --stage-in and --stage-out, copies between racks and the store are jobs of their own, and
    each job waits for those before it. All are submitted, or none.

    With --by the job gets a deadline. With --cheapest it begins when spot is expected to be
    cheapest, by the prices of past days. Both need cluster.yaml, and leave time for --stage-in.

    `sbatch` alone works just as well. Exit code 0: submitted, or --dry-run found no error; 1: an
    error was found, or Slurm refused; 2: wrong usage.
    """
    from toolkit.commands.submit_report import report

    if cheapest and by_text is None:
        raise click.UsageError("--cheapest needs --by TIME: until when may the job run?")
    words_of_sbatch = split_words(words)
    staging = _staging(stage_in, results, racks, cloud)
    stop = _stop_of_size(checkpoint_gib, write_gib_s)
    request = _Request(*words_of_sbatch, user, _environment(user), container, staging, stop)
    with _slurm(config_path, user) as slurm:
        text = slurm.read_script(request.script)
        start = None
        if by_text:
            wanted = _Start(by_text, stage_time, cheapest=cheapest)
            start = _chosen_start(config_path, request, text, wanted, slurm)
        checked = _checked(request, text, start, slurm)
        refused = bool(checked.errors) and not force
        submitted = not (dry_run or refused)
        chain = _chain(checked, request, slurm, submitted=submitted)
    report(checked, chain, submitted=submitted, as_json=as_json)
    if submitted and start is not None:
        _record_start(config_path, start, chain)
    if refused and not dry_run:
        raise _refusal(len(checked.errors))
    return 1 if refused else 0


@dataclass(frozen=True, slots=True)
class _Request:
    """The words of the command line."""

    options: tuple[str, ...]
    script: str
    arguments: tuple[str, ...]
    user: str | None
    environment: Mapping[str, str]
    container: str
    staging: Staging
    stop: StopEstimate | None  # by the size that was given


@dataclass(frozen=True, slots=True)
class _Start:
    """The words about a job's start and end."""

    by_text: str
    stage_time: int | None
    _: KW_ONLY
    cheapest: bool


def split_words(words: tuple[str, ...]) -> tuple[tuple[str, ...], str, tuple[str, ...]]:
    """Return sbatch's options, the script, and the script's arguments."""
    script_index = next(
        (script_index for script_index, word in enumerate(words) if not word.startswith("-")), None
    )
    if script_index is None:
        raise click.UsageError("no script: toolkit submit [--name=value ...] SCRIPT [ARG ...]")
    return words[:script_index], words[script_index], words[script_index + 1 :]


def _staging(stage_in: tuple[str, ...], results: str, racks: str, cloud: str) -> Staging:
    """Return the copies that were asked for.

    Raises UsageError for words that name no copy.
    """
    from toolkit.submit.staging import StageIn, Staging

    try:
        folders = tuple(StageIn.parse(text) for text in stage_in)
    except ValueError as error:
        raise click.UsageError(f"--stage-in: {error}") from error
    if results and not results.startswith("/"):
        raise click.UsageError(f"--stage-out: expected a whole path, not {results[:80]!r}")
    staging = Staging(folders, results, racks, cloud)
    if (racks or cloud) and not staging:
        raise click.UsageError("--racks and --cloud belong to --stage-in and --stage-out")
    return staging


def _copy_seconds(staging: Staging, slurm: SlurmClient, stage_time: int | None) -> int:
    """Return how long the copies before the job take."""
    from toolkit.submit.staging import copy_seconds

    if stage_time is not None or not staging.folders:
        return stage_time or 0
    try:
        return round(copy_seconds(staging, slurm))
    except ValueError as error:
        raise click.UsageError(f"--by with --stage-in: {error}") from error


def _with_partitions(staging: Staging, submission: Plan) -> Staging:
    """Return the staging with its partitions. Raises UsageError where one is unknown."""
    from toolkit.submit.staging import with_partitions

    if not staging:
        return staging
    try:
        return with_partitions(staging, submission)
    except ValueError as error:
        raise click.UsageError(str(error)) from error


def _stop_of_size(gib: float | None, gib_per_second: float) -> StopEstimate | None:
    from toolkit.submit.checks import StopEstimate

    return StopEstimate.from_size(gib, gib_per_second) if gib else None


def _chosen_start(
    config_path: Path | None, request: _Request, text: str, wanted: _Start, slurm: SlurmClient
) -> ChosenStart:
    from toolkit.commands.submit_start import chosen_start
    from toolkit.quote.request import read_request

    job_request = read_request(text, request.script, request.options, request.environment)
    copies = _copy_seconds(request.staging, slurm, wanted.stage_time)
    return chosen_start(
        config_path, job_request, wanted.by_text, cheapest=wanted.cheapest, copy_seconds=copies
    )


def _checked(
    request: _Request, text: str, start: ChosenStart | None, slurm: SlurmClient
) -> Checked:
    """Plan the submission of a script's text, and check it."""
    from toolkit.commands.submit_report import Checked
    from toolkit.submit import checks, plan, staging as stages

    submission = plan.plan(
        request.options,
        request.script,
        request.arguments,
        text=text,
        environment=request.environment,
        container=request.container,
        more=stages.DATA_IS_IN_S3 if request.staging.folders else (),
        chosen=tuple(start.options) if start else (),
    )
    staging = _with_partitions(request.staging, submission)
    user_name = request.user or getpass.getuser()
    stop = request.stop
    if stop is None and (measured_run := slurm.measured_stop(text, request.arguments)):
        stop = checks.StopEstimate.from_run(measured_run)
    findings = checks.findings(submission, text, slurm, user=user_name, stop=stop)
    if staging:
        findings += tuple(stages.findings(submission, staging, slurm, request.environment))
    return Checked(submission, staging, start, stop, findings)


def _chain(
    checked: Checked, request: _Request, slurm: SlurmClient, *, submitted: bool
) -> tuple[ChainedJob, ...]:
    """Submit the job with its copies; or return what would be submitted."""
    from toolkit.submit import staging as stages

    submission, staging = checked.submission, checked.staging
    if submitted:
        return stages.submit_chain(submission, staging, slurm, request.environment)
    return stages.planned_chain(submission, staging, request.environment)


def _record_start(
    config_path: Path | None, start: ChosenStart, chain: tuple[ChainedJob, ...]
) -> None:
    """Record a later start for the savings ledger.

    The job is submitted, so a record that can't be written is no error.
    """
    from toolkit.quote import planned_starts, predictions
    from toolkit.quote.errors import QuoteError

    planned = start.planned(next(item.job for item in chain if item.role == "job"))
    if planned is None:
        return
    try:
        planned_starts.add(predictions.record_path(load(config_path).cluster), planned)
    except QuoteError as error:
        click.echo(f"not in the savings ledger: {error.message}", err=True)


def _refusal(errors: int) -> SubmitRefused:
    from toolkit.submit.errors import SubmitRefused

    return SubmitRefused(
        f"not submitted: {errors} error{'s' if errors > 1 else ''}",
        next_step="mend the errors above, or submit with --force",
    )


def _environment(user: str | None) -> dict[str, str]:
    """Return the environment that sbatch sees.

    On the head it is not this shell's. Variables that the job would miss are named.
    """
    if user is None:
        return dict(os.environ)
    unsent = sorted(
        name
        for name in os.environ
        if name.startswith(("SBATCH_", "TOOLKIT_")) and name not in _OF_THE_CLI
    )
    if unsent:
        click.echo(
            f"warning: the job does not get {', '.join(unsent)}: with --user no variable of this"
            " shell reaches it; submit it by sbatch on the cluster for that",
            err=True,
        )
    return {}


@contextmanager
def _slurm(config_path: Path | None, user: str | None) -> Iterator[SlurmClient]:
    from toolkit.submit.slurm_client import LocalRunner, SlurmClient, UserRunner

    if user is None:
        if shutil.which("sbatch") is None:
            raise click.UsageError("no sbatch on this host: give --user NAME, or log in first")
        yield SlurmClient(LocalRunner())
        return
    from toolkit.deploy.head import Head
    from toolkit.deploy.session import connected

    config = load(config_path)
    with connected(config) as clients:
        yield SlurmClient(UserRunner(Head(clients, config), user))
