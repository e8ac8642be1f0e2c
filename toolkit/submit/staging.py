"""A job with the copies of its data: stage-in before it, stage-out after it.

Each copy is a job of `stage.sbatch`, and each job waits for those before it. Nothing is hidden:
every call of sbatch is printed.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from toolkit.datasets.copy_plan import CopyRates, transfer_seconds
from toolkit.datasets.store.catalog import check_name
from toolkit.errors import ToolkitError
from toolkit.lint.finding import Finding, Severity
from toolkit.submit.errors import SlurmRefused
from toolkit.submit.plan import AddedOption

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from toolkit.submit.plan import Plan
    from toolkit.submit.slurm_client import SlurmClient

JOBSCRIPTS: Final = "/shared/jobscripts"
DATA_IS_IN_S3: Final = (
    (
        AddedOption("--comment=s3-data", "else the burst governor counts the data again"),
        ("comment",),
    ),
)
"""What a job gets whose data is copied before it: the governor reads it (docs/burst.md)."""
OF_ANOTHER_JOB: Final = ("TOOLKIT_RUN_ID", "TOOLKIT_CONTAINER")
"""Variables of the job that its copies must not have: they have folders of their own."""
PARTITIONS_OF_BOTH: Final = 2


@dataclass(frozen=True, slots=True)
class StageIn:
    """A folder of racks that is copied into the store under a name."""

    name: str
    folder: str

    @classmethod
    def parse(cls, text: str) -> StageIn:
        """Parse NAME=FOLDER.

        Raises ValueError, or NameRefused for a name that no dataset can have.
        """
        name, _, folder = text.partition("=")
        if not folder.startswith("/"):
            raise ValueError(f"expected NAME=/FOLDER, not {text[:80]!r}")
        return cls(check_name(name), folder)


@dataclass(frozen=True, slots=True)
class Staging:
    """The copies of one job. Without any, the job is submitted alone."""

    folders: tuple[StageIn, ...] = ()
    results: str = ""  # the folder of racks that gets the run's results
    racks: str = ""  # the partition whose nodes have the folders
    cloud: str = ""  # the partition whose nodes may have the run

    def __bool__(self) -> bool:
        """Return whether there is anything to copy."""
        return bool(self.folders or self.results)


@dataclass(frozen=True, slots=True)
class ChainedJob:
    """A job of a chain, with the call of sbatch that submits it."""

    role: str  # stage-in, job, put-run or get
    argv: tuple[str, ...]
    job: str  # its id; in a dry run a word that stands for it


def with_partitions(staging: Staging, submission: Plan) -> Staging:
    """Return the staging, by default with the partitions of the job.

    A job's list has racks first. Raises ValueError where one is unknown.
    """
    names = tuple(filter(None, submission.partition.split(",")))
    racks = staging.racks or (names[0] if names else "")
    cloud = staging.cloud or (names[-1] if len(names) >= PARTITIONS_OF_BOTH else "")
    if not racks:
        raise ValueError("say by --racks which partition's nodes have the folders")
    if staging.results and not cloud:
        raise ValueError("say by --cloud in which partition the run may have been")
    return Staging(staging.folders, staging.results, racks, cloud)


def copy_seconds(staging: Staging, slurm: SlurmClient) -> float:
    """Return how long the copies before the job take.

    They share a line of 1 Gbit/s. All of a folder counts: what the store has
    already is not looked up. Raises ValueError for a folder that can't be read from here.
    """
    total = 0
    for item in staging.folders:
        size = slurm.folder_bytes(item.folder)
        if size is None:
            raise ValueError(
                f"{item.folder} can't be read from here: say by --stage-time how long it takes"
            )
        total += size
    return transfer_seconds(total, CopyRates())


def findings(
    submission: Plan, staging: Staging, slurm: SlurmClient, environment: Mapping[str, str]
) -> Iterator[Finding]:
    """Yield why the chain can't be submitted."""
    for name, problem in (
        ("dependency", "the copies need the job's --dependency"),
        ("array", "a job array's tasks need a copy each: `--dependency=aftercorr` in docs/data.md"),
    ):
        if name in submission.names and (name == "dependency" or staging.results):
            fix = "submit the jobs one by one, as docs/data.md shows"
            yield Finding("staging", Severity.ERROR, 0, problem, fix)
    for item in planned_chain(submission, staging, environment):
        if item.role != "job":
            try:
                slurm.test_submission(_without_dependency(item.argv))
            except SlurmRefused as error:
                text = f"Slurm would refuse the {item.role} job: {error.message}"
                fix = "look at the partition, and at /shared/jobscripts on the racks"
                yield Finding("staging", Severity.ERROR, 0, text, fix)


def chain(
    submission: Plan,
    staging: Staging,
    submit: Callable[[str, tuple[str, ...]], str],
    environment: Mapping[str, str],
) -> Iterator[ChainedJob]:
    """Yield each job once `submit` has returned its id."""

    def submitted(role: str, argv: tuple[str, ...]) -> ChainedJob:
        return ChainedJob(role, argv, submit(role, argv))

    stage = _Stage(submission, environment)
    before = []
    for item in staging.folders:
        words = ("put", item.folder, item.name)
        before.append(submitted("stage-in", stage.call(staging.racks, words)))
        yield before[-1]
    main = submitted("job", _after(submission.call, [item.job for item in before]))
    yield main
    if not staging.results:
        return
    run = environment.get("TOOLKIT_RUN_ID") or main.job
    put_words = ("put-run", run, "--missing-ok")
    put = submitted("put-run", _after(stage.call(staging.cloud, put_words), [main.job]))
    yield put
    get_words = ("get", f"run-{run}", staging.results, "--missing-ok")
    yield submitted("get", _after(stage.call(staging.racks, get_words), [put.job]))


def submit_chain(
    submission: Plan, staging: Staging, slurm: SlurmClient, environment: Mapping[str, str]
) -> tuple[ChainedJob, ...]:
    """Submit all jobs, or none.

    Those before a refused one, or before Ctrl-C, are cancelled. Raises SlurmRefused, or the
    runner's errors.
    """
    done: list[ChainedJob] = []
    try:
        for item in chain(submission, staging, lambda _, argv: slurm.submit(argv), environment):
            done.append(item)  # noqa: PERF402  # what was submitted before an error is cancelled
    except (ToolkitError, KeyboardInterrupt):
        for item in reversed(done):
            with suppress(ToolkitError):
                slurm.cancel(item.job)
        raise
    return tuple(done)


def planned_chain(
    submission: Plan, staging: Staging, environment: Mapping[str, str]
) -> tuple[ChainedJob, ...]:
    """Return the jobs of a dry run, words in place of ids."""
    count = 0

    def placeholder(role: str, _argv: tuple[str, ...]) -> str:
        nonlocal count
        count += role == "stage-in"
        return f"STAGE-IN-{count}" if role == "stage-in" else role.upper()

    return tuple(chain(submission, staging, placeholder, environment))


class _Stage:
    """The calls of stage.sbatch for one job."""

    def __init__(self, submission: Plan, environment: Mapping[str, str]) -> None:
        folder = environment.get("TOOLKIT_JOBSCRIPTS") or JOBSCRIPTS
        self._script = f"{folder}/stage.sbatch"
        unset = [f"-u{name}" for name in OF_ANOTHER_JOB if name in environment]
        self._before = ("env", *unset) if unset else ()
        same = {"account": submission.account, "chdir": submission.chdir}
        self._options = tuple(f"--{name}={value}" for name, value in same.items() if value)

    def call(self, partition: str, words: Sequence[str]) -> tuple[str, ...]:
        """Return the call that submits a copy."""
        options = (f"--partition={partition}", *self._options)
        return (*self._before, "sbatch", "--parsable", *options, self._script, *words)


def _after(call: tuple[str, ...], jobs: Sequence[str]) -> tuple[str, ...]:
    """Return a call of sbatch whose job waits for the others.

    It ends with them if one of them fails.
    """
    if not jobs:
        return call
    place = call.index("--parsable") + 1
    waits = (f"--dependency=afterok:{':'.join(jobs)}", "--kill-on-invalid-dep=yes")
    return (*call[:place], *waits, *call[place:])


def _without_dependency(call: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(
        word
        for word in call[call.index("sbatch") :]
        if not word.startswith(("--dependency=", "--kill-on-invalid-dep="))
    )
