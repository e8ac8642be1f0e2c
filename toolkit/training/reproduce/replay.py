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
from toolkit.datasets.settings import places
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
    own = {
        name: environment[name] for name in ("PATH", "HOME", "USER", "LANG") if name in environment
    }
    theirs = dict(submission.environment(run_dir, recorded))
    if folder and "PYTHONPATH" in theirs:
        places = theirs["PYTHONPATH"].split(os.pathsep)
        theirs["PYTHONPATH"] = os.pathsep.join(_moved(recorded, place, folder) for place in places)
    key = str((read_json(run_dir / "run.json") or {}).get("key", ""))
    options = [f"--{name}={value}" for name, value in sorted(recorded.options.items())]
    typed = submission.typed(run_dir, recorded)
    directory = _moved(recorded, recorded.directory, folder)
    fixed = ("--parsable", f"--chdir={directory}", *options, str(submission.job_script(run_dir)))
    # The training script is the job script's first argument.
    script = [_moved(recorded, word, folder) for word in recorded.arguments[:1]]
    code = _not_rebuilt(recorded) if folder else _code_missing(recorded)
    return Replay(
        argv=("sbatch", *(typed or ()), *fixed, *script, *recorded.arguments[1:]),
        environment={**own, **theirs, "TOOLKIT_REPLAY_OF": key},
        directory=directory,
        missing=(*code, *_script_missing(run_dir, recorded)),
        differs=(
            *([] if folder else _code_differs(recorded)),
            *_untracked_differ(recorded, folder),
            *_surroundings_differ(recorded, typed),
            *_data_differs(run_dir),
        ),
        unknown=tuple(_unknown(recorded)),
    )


def build(run_dir: Path, recorded: Submission, folder: Path) -> None:
    """Make the recorded code in `folder`, as a worktree of its checkout.

    Files that git does not know are copied if they are unchanged. Raises CalledProcessError or
    OSError.
    """
    root = Path(recorded.git_root)
    _git(root, "worktree", "add", "--detach", str(folder), recorded.git_commit)
    if recorded.patch:
        _git(folder, "apply", "--binary", str(run_dir / recorded.patch))
    lost = dict(untracked_files.changed(root, recorded.untracked))
    for name in recorded.untracked.keys() - lost.keys():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(root / name, folder / name)


def _moved(recorded: Submission, path: str, folder: Path | None) -> str:
    """Return the place in the rebuilt checkout of an old path.

    A path outside the checkout stays as it is.
    """
    absolute, root = Path(recorded.directory, path), recorded.git_root
    if not folder or not root or not absolute.is_relative_to(root):
        return path
    return str(folder / absolute.relative_to(root))


def _not_rebuilt(recorded: Submission) -> Iterator[str]:
    if not recorded.git_root:
        yield "the code was in no git checkout, so it can't be made again"
    elif recorded.git_dirty and not recorded.patch:
        yield "the checkout was dirty, and its diff was too large to be kept"


def _code_missing(recorded: Submission) -> Iterator[str]:
    if not Path(recorded.directory).is_dir():
        yield f"the folder it was submitted from is gone: {recorded.directory}"
    if not Path(recorded.training_script).is_file():
        yield f"the training script is gone: {recorded.training_script}"


def _untracked_differ(recorded: Submission, folder: Path | None) -> list[str]:
    place = untracked_files.base(recorded.git_root, recorded.training_script)
    lacks = f"{folder} would lack what it was: " if folder else ""
    return untracked_files.said(
        f"{lacks}{place / name}, which is not in git, {what}"
        for name, what in untracked_files.changed(place, recorded.untracked)
        if folder or place / name != Path(recorded.training_script)  # reported by itself
    )


def _unknown(recorded: Submission) -> Iterator[str]:
    """Yield facts that were not recorded, so no comparison can tell."""
    if not recorded.untracked_whole:
        modules = "the code is in no git checkout: only modules it had imported at first are known"
        yield "not every file that git does not know was recorded" if recorded.git_root else modules
    unread = [name for name, mark in recorded.untracked.items() if not mark.startswith("sha256:")]
    if unread:
        yield from untracked_files.said(
            [f"the content of {name} was not recorded" for name in unread]
        )
    if recorded.unkept:
        yield f"the job had variables that were not kept: {', '.join(recorded.unkept)}"


def _script_missing(run_dir: Path, recorded: Submission) -> list[str]:
    script = submission.job_script(run_dir)
    found = []
    try:
        if hashlib.sha256(script.read_bytes()).hexdigest() != recorded.job_script_sha256:
            found.append(f"{script} was changed since it was kept")
        if script.stat().st_uid != os.getuid():
            found.append(f"{script} is not yours: only who ran a job can replay it")
    except OSError as error:
        found.append(f"the job script was not kept, or is gone: {error}")
    return found


def _code_differs(recorded: Submission) -> list[str]:
    code = git_commit.code_of(Path(recorded.training_script), {})
    root = recorded.git_root
    found = []
    if code.script_sha256 not in (recorded.training_script_sha256, "unknown"):
        found.append(f"{recorded.training_script} has another content")
    if root and code.commit != recorded.git_commit:
        found.append(f"{root} is at {code.commit[:12] or '?'}, not {recorded.git_commit[:12]}")
    elif root and code.patch_sha256 != recorded.patch_sha256:
        found.append(f"what is not committed in {root} is not what it was")
    return found


def _surroundings_differ(recorded: Submission, typed: Sequence[str] | None) -> list[str]:
    found = []
    if typed is None:
        found.append("what sbatch's command line said is not known for certain")
    lock = _lock(recorded.python)
    if lock and recorded.lock and lock != recorded.lock:
        found.append("the environment has other packages: compare the runs' environment-*.txt")
    if recorded.array_task:
        found.append(f"it was task {recorded.array_task} of an array: this is that task alone")
    return found


def _data_differs(run_dir: Path) -> list[str]:
    """Return the names of other datasets now, and the lost datasets.

    A name may stand for another version than it did.
    """
    asked = datasets_used.read(run_dir)
    if not asked:
        return []
    try:
        catalog = Catalog(open_store(places().store_url()))
        return [
            said for name, versions in asked.items() for said in _renamed(catalog, name, versions)
        ]
    except DataError as error:
        return [f"its datasets can't be looked up: {error.message}"]


def _renamed(catalog: Catalog, asked: str, versions: Sequence[str]) -> list[str]:
    try:
        now = catalog.resolve(asked)
        catalog.manifest(now)
    except DatasetUnknown:
        return [f"dataset {asked} is no longer in {catalog.store.url}"]
    return [] if [now] == list(versions) else [f"dataset {asked} is {now} now, not {versions[-1]}"]


def _lock(python: str) -> str:
    """Return the hash of the packages that a Python has.

    "" when there is no such Python here, as for one in a container.
    """
    # -P: the modules beside that file must not become top-level modules.
    argv = [python, "-P", installed_packages.__file__]
    try:
        done = subprocess.run(argv, capture_output=True, timeout=TIMEOUT, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return installed_packages.digest(done.stdout.decode())


def _git(folder: Path, *words: str) -> None:
    argv = ["git", "-C", str(folder), *words]
    subprocess.run(argv, check=True, capture_output=True, text=True, timeout=TIMEOUT)


def _call(argv: Sequence[str], environment: Mapping[str, str], folder: str) -> str:
    done = subprocess.run(
        list(argv),
        env=dict(environment),
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=True,
    )
    return done.stdout


def _of_others(run_dir: Path) -> Path | None:
    """Return a path in the run's folder that another user owns.

    None when there is none. The commands recorded there are run below.
    """
    for path in (run_dir, run_dir / submission.FILE):
        if path.exists() and path.lstat().st_uid != os.getuid():
            return path
    return None


def run(options: argparse.Namespace, call: Call = _call) -> tuple[int, Replay | str]:
    """Run the command.

    Returns its exit code, and the replay or the reason why there is none.
    """
    run_dir: Path = options.run_dir.resolve()
    others = _of_others(run_dir)
    recorded = None if others else submission.read(run_dir)
    if recorded is None:
        reason = "no submission.json: made before runs were kept for this, or not by a batch job"
        mine = f"{others} is not yours: only who ran a job can replay it"
        return 2, f"{run_dir}: {mine if others else reason}"
    folder = options.rebuild.resolve() if options.rebuild else None
    replay = prepare(run_dir, recorded, os.environ, folder)
    if replay.missing or (replay.differs and not options.anyway):
        return 1, replay
    if options.dry_run:
        return 0, replay
    try:
        if folder:
            build(run_dir, recorded, folder)
        answer = call(replay.argv, replay.environment, replay.directory)
    except OSError as error:
        return 1, replace(replay, missing=(*replay.missing, str(error)))
    except subprocess.CalledProcessError as error:
        said = f"{error.cmd[0]}: exit code {error.returncode}: {str(error.stderr).strip()[-500:]}"
        return 1, replace(replay, missing=(*replay.missing, said))
    return 0, replace(replay, job_id=answer.strip().partition(";")[0])


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the arguments, run the command, and print its result."""
    parser = argparse.ArgumentParser(prog="python -m toolkit.training replay")
    parser.add_argument("run_dir", type=Path)
    parser.add_argument("--dry-run", action="store_true", help="print the call; submit nothing")
    parser.add_argument("--anyway", action="store_true", help="submit although something differs")
    parser.add_argument("--rebuild", type=Path, help="make the code of then in this new folder")
    code, found = run(parser.parse_args(arguments))
    if isinstance(found, str):
        sys.stderr.write(f"{found}\n")
    else:
        sys.stdout.write(json.dumps(asdict(found)) + "\n")
    return code
