"""Submit a run again as it was, from its record.

    python -m toolkit.training replay RUN_DIR [--dry-run] [--anyway] [--rebuild FOLDER]

The job script is the kept copy, with its recorded arguments, options and environment. The new job
gets a run folder of its own. If a part is missing or has changed, the command says so and submits
nothing.

`--rebuild` makes the recorded code in a new folder: the commit, the dirty diff, and unchanged files
that git does not know. `--anyway` accepts differences. Facts that can't be known, such as the
values of variables that were not kept, are `unknown` and stop nothing.

Prints one JSON object. Exits 0 if it submitted (or could), 1 if it refused, 2 if there is no run.
"""

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from toolkit.datasets.errors import DataError, DatasetUnknown
from toolkit.datasets.settings import read_settings
from toolkit.datasets.store.catalog import Catalog
from toolkit.datasets.store.open_store import open_store
from toolkit.training.io.durable_files import read_json
from toolkit.training.reproduce import git_commit, installed_packages, submission, untracked_files
from toolkit.training.reproduce.submission import Submission
from toolkit.training.run_folder import datasets_used

TIMEOUT = 120  # seconds for one command

Call = Callable[[Sequence[str], Mapping[str, str], str], str]
"""(argv, environment, folder) → standard output; raises CalledProcessError."""


@dataclass(frozen=True, slots=True)
class Replay:
    """An sbatch call, and its differences from the recorded run."""

    argv: tuple[str, ...]
    environment: Mapping[str, str]
    directory: str
    missing: tuple[str, ...] = ()  # reasons why it can't be submitted
    differs: tuple[str, ...] = ()  # reasons why it would be another run
    unknown: tuple[str, ...] = ()  # reasons why it may be another run
    job_id: str = ""


def prepare(
    run_dir: Path,
    recorded: Submission,
    environment: Mapping[str, str],
    folder: Path | None = None,
) -> Replay:
    """Return the call that would make the run again.

    `environment` is the caller's own. With `folder` the call is for the recorded code, which
    `build` makes there.
    """
    caller_variables = {
        name: environment[name] for name in ("PATH", "HOME", "USER", "LANG") if name in environment
    }
    key = str((read_json(run_dir / "run.json") or {}).get("key", ""))
    options = [f"--{name}={value}" for name, value in sorted(recorded.options.items())]
    typed_options = submission.typed_options(run_dir, recorded)
    directory = _path_in(recorded, recorded.directory, folder)
    job_script = str(submission.job_script(run_dir))
    fixed_options = ("--parsable", f"--chdir={directory}", *options, job_script)
    job_variables = _job_variables(run_dir, recorded, folder)
    # The training script is the job script's first argument.
    script = [_path_in(recorded, argument, folder) for argument in recorded.arguments[:1]]
    missing_code = _rebuild_problems(recorded) if folder else _missing_code(recorded)
    return Replay(
        argv=("sbatch", *(typed_options or ()), *fixed_options, *script, *recorded.arguments[1:]),
        environment={**caller_variables, **job_variables, "TOOLKIT_REPLAY_OF": key},
        directory=directory,
        missing=(*missing_code, *_missing_script(run_dir, recorded)),
        differs=(
            *([] if folder else _code_differences(recorded)),
            *_untracked_differences(recorded, folder),
            *_job_differences(recorded, typed_options),
            *_dataset_differences(run_dir),
        ),
        unknown=tuple(_unknown(recorded)),
    )


def _job_variables(run_dir: Path, recorded: Submission, folder: Path | None) -> dict[str, str]:
    variables = dict(submission.job_environment(run_dir, recorded))
    if folder and "PYTHONPATH" in variables:
        entries = variables["PYTHONPATH"].split(os.pathsep)
        variables["PYTHONPATH"] = os.pathsep.join(
            _path_in(recorded, entry, folder) for entry in entries
        )
    return variables


def build(run_dir: Path, recorded: Submission, folder: Path) -> None:
    """Make the recorded code in `folder`, as a worktree of its checkout.

    Files that git does not know are copied if they are unchanged. Raises CalledProcessError or
    OSError.
    """
    root = Path(recorded.git_root)
    _git(root, "worktree", "add", "--detach", str(folder), recorded.git_commit)
    if recorded.patch:
        _git(folder, "apply", "--binary", str(run_dir / recorded.patch))
    changed_names = dict(untracked_files.changed_files(root, recorded.untracked))
    for name in recorded.untracked.keys() - changed_names.keys():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(root / name, folder / name)


def _path_in(recorded: Submission, path: str, folder: Path | None) -> str:
    """Return the place in the rebuilt checkout of an old path.

    A path outside the checkout stays as it is.
    """
    absolute, root = Path(recorded.directory, path), recorded.git_root
    if not folder or not root or not absolute.is_relative_to(root):
        return path
    return str(folder / absolute.relative_to(root))


def _rebuild_problems(recorded: Submission) -> Iterator[str]:
    if not recorded.git_root:
        yield "the code was in no git checkout, so it can't be rebuilt"
    elif recorded.git_dirty and not recorded.patch:
        yield "the checkout was dirty, and its diff was too large to be kept"


def _missing_code(recorded: Submission) -> Iterator[str]:
    if not Path(recorded.directory).is_dir():
        yield f"the folder of the submission no longer exists: {recorded.directory}"
    if not Path(recorded.training_script).is_file():
        yield f"the training script no longer exists: {recorded.training_script}"


def _untracked_differences(recorded: Submission, folder: Path | None) -> list[str]:
    root = untracked_files.base(recorded.git_root, recorded.training_script)
    prefix = f"{folder} would lack the recorded file: " if folder else ""
    return untracked_files.shorten(
        f"{prefix}{root / name}, which is not in git, {change}"
        for name, change in untracked_files.changed_files(root, recorded.untracked)
        if folder or root / name != Path(recorded.training_script)  # reported by itself
    )


def _unknown(recorded: Submission) -> Iterator[str]:
    """Yield facts that were not recorded, so no comparison can tell."""
    if not recorded.untracked_whole:
        modules = "the code is in no git checkout: only the modules imported at the start are known"
        files = "some files that git does not know were not recorded"
        yield files if recorded.git_root else modules
    marks = recorded.untracked.items()
    yield from untracked_files.shorten(
        f"the content of {name} was not recorded"
        for name, mark in marks
        if not mark.startswith("sha256:")
    )
    if recorded.unkept:
        yield f"the values of these variables were not recorded: {', '.join(recorded.unkept)}"


def _missing_script(run_dir: Path, recorded: Submission) -> list[str]:
    script = submission.job_script(run_dir)
    problems = []
    try:
        if hashlib.sha256(script.read_bytes()).hexdigest() != recorded.job_script_sha256:
            problems.append(f"{script} has changed since it was recorded")
        if script.stat().st_uid != os.getuid():
            problems.append(f"{script} is not yours: only the user who ran a job can replay it")
    except OSError as error:
        problems.append(f"the copy of the job script can't be read: {error}")
    return problems


def _code_differences(recorded: Submission) -> list[str]:
    code = git_commit.code_of(Path(recorded.training_script), {})
    root = recorded.git_root
    differences = []
    if code.script_sha256 not in (recorded.training_script_sha256, "unknown"):
        differences.append(f"{recorded.training_script} has another content")
    if root and code.commit != recorded.git_commit:
        differences.append(
            f"{root} is at {code.commit[:12] or '?'}, not {recorded.git_commit[:12]}"
        )
    elif root and code.patch_sha256 != recorded.patch_sha256:
        differences.append(f"the uncommitted changes in {root} are not the recorded ones")
    return differences


def _job_differences(recorded: Submission, typed_options: Sequence[str] | None) -> list[str]:
    differences = []
    if typed_options is None:
        differences.append("the options on sbatch's command line are not known for certain")
    packages_hash = _packages_hash(recorded.python)
    if packages_hash and recorded.lock and packages_hash != recorded.lock:
        differences.append(
            "the environment has other packages: compare the runs' environment-*.txt"
        )
    if recorded.array_task:
        differences.append(
            f"the job was task {recorded.array_task} of an array; the replay is that task alone"
        )
    return differences


def _dataset_differences(run_dir: Path) -> list[str]:
    """Return the names of other datasets now, and the lost datasets.

    A name may stand for another version than it did.
    """
    recorded_versions = datasets_used.read(run_dir)
    if not recorded_versions:
        return []
    try:
        catalog = Catalog(open_store(read_settings().store_url()))
        return [
            difference
            for name, versions in recorded_versions.items()
            for difference in _dataset_difference(catalog, name, versions)
        ]
    except DataError as error:
        return [f"the datasets of the run can't be looked up: {error.message}"]


def _dataset_difference(catalog: Catalog, name: str, versions: Sequence[str]) -> list[str]:
    try:
        version = catalog.resolve(name)
        catalog.manifest(version)
    except DatasetUnknown:
        return [f"dataset {name} is no longer in {catalog.store.url}"]
    return (
        []
        if [version] == list(versions)
        else [f"dataset {name} is {version} now, not {versions[-1]}"]
    )


def _packages_hash(python: str) -> str:
    """Return the hash of the packages that a Python has.

    "" when there is no such Python here, as for one in a container.
    """
    # -P: the modules beside that file must not become top-level modules.
    argv = [python, "-P", installed_packages.__file__]
    try:
        process = subprocess.run(argv, capture_output=True, timeout=TIMEOUT, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return installed_packages.digest(process.stdout.decode())


def _git(folder: Path, *arguments: str) -> None:
    argv = ["git", "-C", str(folder), *arguments]
    subprocess.run(argv, check=True, capture_output=True, text=True, timeout=TIMEOUT)


def _run_command(argv: Sequence[str], environment: Mapping[str, str], folder: str) -> str:
    process = subprocess.run(
        list(argv),
        env=dict(environment),
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=True,
    )
    return process.stdout


def _foreign_path(run_dir: Path) -> Path | None:
    """Return a path in the run's folder that another user owns.

    None when there is none. The commands recorded there are run below.
    """
    for path in (run_dir, run_dir / submission.FILE):
        if path.exists() and path.lstat().st_uid != os.getuid():
            return path
    return None


def run_replay(options: argparse.Namespace, call: Call = _run_command) -> tuple[int, Replay | str]:
    """Run the command.

    Returns its exit code, and the replay or the reason why there is none.
    """
    run_dir: Path = options.run_dir.resolve()
    foreign_path = _foreign_path(run_dir)
    recorded = None if foreign_path else submission.read(run_dir)
    if recorded is None:
        reason = "there is no submission.json: no batch job made this run, or an older toolkit did"
        foreign_reason = f"{foreign_path} is not yours: only the user who ran a job can replay it"
        return 2, f"{run_dir}: {foreign_reason if foreign_path else reason}"
    folder = options.rebuild.resolve() if options.rebuild else None
    replay = prepare(run_dir, recorded, os.environ, folder)
    if replay.missing or (replay.differs and not options.anyway):
        return 1, replay
    if options.dry_run:
        return 0, replay
    try:
        if folder:
            build(run_dir, recorded, folder)
        output = call(replay.argv, replay.environment, replay.directory)
    except OSError as error:
        return 1, replace(replay, missing=(*replay.missing, str(error)))
    except subprocess.CalledProcessError as error:
        failure = (
            f"{error.cmd[0]}: exit code {error.returncode}: {str(error.stderr).strip()[-500:]}"
        )
        return 1, replace(replay, missing=(*replay.missing, failure))
    return 0, replace(replay, job_id=output.strip().partition(";")[0])


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the arguments, run the command, and print its result."""
    parser = argparse.ArgumentParser(prog="python -m toolkit.training replay")
    parser.add_argument("run_dir", type=Path)
    parser.add_argument("--dry-run", action="store_true", help="print the call; submit nothing")
    parser.add_argument("--anyway", action="store_true", help="submit although something differs")
    parser.add_argument("--rebuild", type=Path, help="make the code of then in this new folder")
    code, result = run_replay(parser.parse_args(arguments))
    if isinstance(result, str):
        sys.stderr.write(f"{result}\n")
    else:
        sys.stdout.write(json.dumps(asdict(result)) + "\n")
    return code
