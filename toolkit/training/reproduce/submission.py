"""Record a submission, with all that is needed to submit it again.

The batch script (jobscripts/lib/record.sh) writes the raw parts to RUN_DIR/submission on the first
attempt. Rank 0 adds the facts that only Python knows, and writes RUN_DIR/submission.json.
"""

import hashlib
import re
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from toolkit.training.io.durable_files import fsync_directory, read_json, write_json
from toolkit.training.reproduce import untracked_files
from toolkit.training.reproduce.git_commit import Code
from toolkit.training.slurm import sbatch_options

FILE = "submission.json"
VERSION = 1

# sbatch's options by the variables that Slurm gives a batch script for them.
_OPTIONS = {
    "job-name": "SLURM_JOB_NAME",
    "partition": "SLURM_JOB_PARTITION",
    "account": "SLURM_JOB_ACCOUNT",
    "qos": "SLURM_JOB_QOS",
    "nodes": "SLURM_JOB_NUM_NODES",
    "ntasks-per-node": "SLURM_NTASKS_PER_NODE",
    "cpus-per-task": "SLURM_CPUS_PER_TASK",
    "gpus-per-node": "SLURM_GPUS_PER_NODE",
    "mem": "SLURM_MEM_PER_NODE",
}
# Variables that every attempt sets itself.
_SET_BY_ATTEMPT = {
    "TOOLKIT_ATTEMPT_STARTED",
    "TOOLKIT_OF_JOB",
    "TOOLKIT_RUN_DIR",
    "TOOLKIT_RUN_ID",
    "TOOLKIT_RUN_OWNER",
    "TOOLKIT_SLURM_ID",
    "CUDA_VISIBLE_DEVICES",
}
# A URL's user and password. An image that is pinned (docker://name@sha256:…) has neither.
_USER_INFO = re.compile(r"(?<=://)[^/\s]*@(?!sha256:)")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}", re.ASCII)
# Variables of any shell and any job: their presence says nothing about the user's own settings.
_COMMON_VARIABLE = re.compile(
    r"(_|PATH|HOME|USER|LOGNAME|SHELL|PWD|OLDPWD|TERM|COLORTERM|LANG|LANGUAGE|SHLVL|HOST(NAME)?|MAIL"
    r"|TMPDIR|EDITOR|VISUAL|PAGER|DISPLAY|LS_COLORS|LESS(OPEN|CLOSE)?|PS1|TZ|ENVIRONMENT|TMUX"
    r"|HIST(SIZE|FILE|FILESIZE|CONTROL|TIMEFORMAT)|PYTHONUNBUFFERED"
    r"|GPU_DEVICE_ORDINAL|ROCR_VISIBLE_DEVICES|ZE_AFFINITY_MASK"
    r"|(LC|SSH|XDG|DBUS|BASH|SLURM|SLURMD|SUDO|PMI|PMIX)_.*)\Z",
    re.ASCII,
)
_MAX_UNKEPT = 100  # the largest number of names to record
_A_YEAR_OF_MINUTES = 366 * 24 * 60


@dataclass(frozen=True, slots=True)
class Submission:
    """An sbatch call."""

    job_id: str
    directory: str
    job_script_sha256: str
    arguments: tuple[str, ...]
    # The options that the job got. They win over the typed ones, since a default or a range of
    # nodes may come out differently later.
    options: Mapping[str, str]
    environment: Mapping[str, str]
    training_script: str
    training_script_sha256: str
    git_root: str = ""
    git_commit: str = ""
    git_dirty: bool = False
    patch: str = ""  # a file in the run's folder; empty for a clean checkout or a too large diff
    patch_sha256: str = ""
    lock: str = ""  # sha256:… of the packages of `python`
    python: str = ""
    array_task: str = ""
    untracked: Mapping[str, str] = field(
        default_factory=dict
    )  # see toolkit.training.reproduce.untracked_files
    untracked_whole: bool = False
    unkept: tuple[str, ...] = ()  # names of the user's variables whose values were not kept
    version: int = VERSION
    more: Mapping[str, Any] = field(default_factory=dict)


def parts_folder(run_dir: Path) -> Path:
    """Return the folder in which the batch script left the raw parts."""
    return run_dir / "submission"


def job_script(run_dir: Path) -> Path:
    """Return the path of the copy of the batch script."""
    return parts_folder(run_dir) / "job.sbatch"


def capture(run_dir: Path, code: Code, *, lock: str, patch: str) -> Submission | None:
    """Write submission.json from its parts, once.

    Returns it, or None when no batch script left parts.
    """
    folder = parts_folder(run_dir)
    try:
        script = job_script(run_dir).read_bytes()
        arguments = _split_fields((folder / "arguments").read_bytes())
        variables = _variables(folder)
        directory = (folder / "directory").read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return None
    untracked = untracked_files.list_untracked(code, run_dir)
    submission = Submission(
        job_id=variables.get("SLURM_JOB_ID", ""),
        directory=directory,
        job_script_sha256=hashlib.sha256(script).hexdigest(),
        arguments=arguments,
        options=_options(variables),
        environment=_public_variables(variables),
        training_script=code.script,
        training_script_sha256=code.script_sha256,
        git_root=code.root,
        git_commit=code.commit,
        git_dirty=code.dirty,
        patch=patch,
        patch_sha256=code.patch_sha256,
        lock=lock,
        python=sys.executable,
        array_task=variables.get("SLURM_ARRAY_TASK_ID", ""),
        untracked=untracked.marks,
        untracked_whole=untracked.complete,
        unkept=_unkept_names(folder, variables),
    )
    _write_private(run_dir / FILE, asdict(submission), folder)
    return submission


def read(run_dir: Path) -> Submission | None:
    """Return the submission that `capture` wrote.

    None when there is none that this version can read.
    """
    values = read_json(run_dir / FILE)
    try:
        if not values:
            return None
        sequences = {"arguments": (), "unkept": (), **values}
        tuples = {name: tuple(sequences[name]) for name in ("arguments", "unkept")}
        return Submission(**{**values, **tuples})
    except (TypeError, KeyError):
        return None


def job_environment(run_dir: Path, recorded: Submission) -> Mapping[str, str]:
    """Return the job's own variables, with values that submission.json omits."""
    try:
        variables = _variables(parts_folder(run_dir))
    except OSError:
        return recorded.environment
    return {name: value for name, value in variables.items() if _is_job_variable(name)}


def typed_options(run_dir: Path, recorded: Submission) -> tuple[str, ...] | None:
    """Return the typed sbatch options that another job may have too.

    They are copied word for word. None when they aren't known for certain. They stay in the parts,
    which only their user can read: `--export` may have a secret in it, and submission.json goes to
    the tracking server.
    """
    try:
        line = (parts_folder(run_dir) / "submit-line").read_text("utf-8", "surrogateescape")
    except OSError:
        return None
    return sbatch_options.repeatable(line.removesuffix("\n"), recorded.arguments)


def _options(variables: Mapping[str, str]) -> dict[str, str]:
    options = {option: variables[name] for option, name in _OPTIONS.items() if variables.get(name)}
    start, end = variables.get("SLURM_JOB_START_TIME", ""), variables.get("SLURM_JOB_END_TIME", "")
    if start.isdigit() and end.isdigit():
        minutes = (int(end) - int(start) + 59) // 60
        if 0 < minutes < _A_YEAR_OF_MINUTES:
            options["time"] = str(minutes)
    return options


def _public_variables(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that the tracking server may have.

    Not SBATCH_EXPORT: it may have the value of any variable in it.
    """
    return {
        name: _USER_INFO.sub("", value)
        for name, value in variables.items()
        if _is_job_variable(name) and name != "SBATCH_EXPORT"
    }


def _unkept_names(folder: Path, variables: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names of the user's variables that no replay will have."""
    try:
        names = (folder / "names").read_text(encoding="ascii", errors="replace").split()
    except OSError:
        return ()
    user_names = [
        name for name in names if _VARIABLE.fullmatch(name) and not _COMMON_VARIABLE.match(name)
    ]
    return tuple(sorted({*user_names} - {*variables} - _SET_BY_ATTEMPT)[:_MAX_UNKEPT])


def _write_private(path: Path, value: Mapping[str, Any], folder: Path) -> None:
    """Write `path` for its user alone.

    Until it is private it is in `folder`, which only its user can enter.
    """
    private_path = folder / path.name
    write_json(private_path, value)
    private_path.chmod(0o600)
    private_path.replace(path)
    fsync_directory(path.parent)


def _variables(folder: Path) -> dict[str, str]:
    return dict(_split_pair(item) for item in _split_fields((folder / "environment").read_bytes()))


def _is_job_variable(name: str) -> bool:
    return not name.startswith("SLURM_") and name not in _SET_BY_ATTEMPT


def _split_fields(content: bytes) -> tuple[str, ...]:
    return tuple(part.decode(errors="surrogateescape") for part in content.split(b"\0")[:-1])


def _split_pair(item: str) -> tuple[str, str]:
    name, _, value = item.partition("=")
    return name, value
