"""Runs one size: deploy, a job, its figures, and always the clean-up."""

from __future__ import annotations

import json
import signal
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from tests.aws import job
from tests.aws.commands import CommandFailed, Deadline, toolkit
from tests.aws.estimate import total
from tests.aws.place import cluster_yaml
from tests.aws.record import Record
from tests.aws.sizes import CLEANUP_MINUTES
from toolkit.config import load
from toolkit.deploy import head_volume, images, names
from toolkit.deploy.head import Head
from toolkit.deploy.session import connected
from toolkit.deploy.tagged_resources import find_resources
from toolkit.errors import ToolkitError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.aws.estimate import Part
    from tests.aws.place import Place
    from tests.aws.sizes import Size

CLEANUP_TRIES = 3
FAILED, USAGE = 1, 2


@dataclass(frozen=True, slots=True)
class Workspace:
    """The folder of one size's run."""

    root: Path
    size: str

    @property
    def folder(self) -> Path:
        """Return the folder itself."""
        return self.root / self.size

    @property
    def config(self) -> Path:
        """Return the path of cluster.yaml."""
        return self.folder / "cluster.yaml"

    @property
    def unfinished(self) -> Path:
        """Return the file that exists until the clean-up has found nothing left.

        It says whether images existed before; these stay.
        """
        return self.folder / "unfinished.json"


def run(size: Size, place: Place, workspace: Workspace, parts: tuple[Part, ...]) -> int:
    """Test one size; return 0 if it passed and nothing is left."""
    problem = begin(size, place, workspace)
    if problem:
        say(f"refused: {problem}")
        return USAGE
    record = Record(
        size.name,
        place.region if place.on_aws else "local cloud",
        size.node_type,
        f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        str(total(parts)),
    )
    deadline = Deadline(time.monotonic() + 60 * size.minutes)
    try:
        observe(size, place, workspace.config, deadline, record)
    except (CommandFailed, ToolkitError) as error:
        record.problems.append(str(error))
    except KeyboardInterrupt:
        record.problems.append("interrupted")
    finally:
        with uninterrupted():
            started = time.monotonic()
            record.cleaned = clean_up(workspace)
            record.figures["destroy_seconds"] = round(time.monotonic() - started)
            record.write(workspace.folder)
    for line in record.problems:
        say(f"failed: {line}")
    say(f"record: {workspace.folder / 'record.md'}")
    return 0 if record.passed else FAILED


def begin(size: Size, place: Place, workspace: Workspace) -> str:
    """Write down what will be made; return a refusal or ""."""
    if workspace.unfinished.exists():
        return f"an earlier run left {size.cluster}; first `make aws-test-clean`"
    workspace.folder.mkdir(parents=True, exist_ok=True)
    workspace.config.write_text(cluster_yaml(size, place), encoding="utf-8")
    config = load(workspace.config)
    with connected(config) as clients:
        left = find_resources(clients, config)
        if left:
            return (
                f"{size.cluster} exists: {', '.join(map(str, left))};"
                f" first `toolkit destroy --yes --config {workspace.config}`"
            )
        had_images = bool(images.find(clients.client("ec2"), own_images()))
    state = json.dumps({"had_images": had_images})
    workspace.unfinished.write_text(state, encoding="utf-8")
    return ""


def observe(
    size: Size, place: Place, config_path: Path, deadline: Deadline, record: Record
) -> None:
    """Deploy the cluster, run its job, and record what is seen."""
    toolkit(config_path, deadline, "preflight")
    started = time.monotonic()
    toolkit(config_path, deadline, "deploy")
    record.figures["deploy_seconds"] = round(time.monotonic() - started)
    config = load(config_path)
    with connected(config) as clients:
        head = Head(clients, config)
        result = job.wait(head, job.submit(head, size), deadline)
    record.figures["submit_to_start_seconds"] = result.wait_seconds
    record.figures["job_seconds"] = result.run_seconds
    record.seen.update(result.sections)
    record.problems += job.disappointments(size.expectations, result.sections, on_aws=place.on_aws)
    if result.state != "COMPLETED":
        record.problems.append(f"the job is {result.state}")
    report = json.loads(toolkit(config_path, deadline, "report", "--since", "24h", "--json"))
    record.figures["instances_usd"] = round(float(report["total"]), 4)


def clean(root: Path) -> int:
    """Delete what killed runs left; return 0 if nothing stays."""
    unfinished = [Workspace(root, path.parent.name) for path in root.glob("*/unfinished.json")]
    if not unfinished:
        say("nothing to clean")
    with uninterrupted():
        results = [clean_up(workspace) for workspace in unfinished]
    return 0 if all(results) else FAILED


def clean_up(workspace: Workspace) -> bool:
    """Destroy the cluster; return whether nothing is left of it.

    May be repeated. Images that were there before the run stay.
    """
    state = json.loads(workspace.unfinished.read_text(encoding="utf-8"))
    words = ("destroy", "--yes", "--backups", *(() if state["had_images"] else ("--images",)))
    for _ in range(CLEANUP_TRIES):
        deadline = Deadline(time.monotonic() + 60 * CLEANUP_MINUTES)
        try:
            toolkit(workspace.config, deadline, *words)
            delete_snapshots(workspace.config)
            left = remains(workspace.config)
        except (CommandFailed, ToolkitError) as error:
            left = (str(error),)
        if not left:
            workspace.unfinished.unlink()
            say("clean: nothing with the cluster's tag or name is left")
            return True
        say(f"left: {'; '.join(left)}")
    say(f"NOT CLEAN: {workspace.config} may still cost money; `make aws-test-clean` tries again")
    return False


def delete_snapshots(config_path: Path) -> None:
    """Delete the snapshots of the head's data volume, which destroy keeps."""
    config = load(config_path)
    with connected(config) as clients:
        ec2 = clients.client("ec2")
        for snapshot in head_volume.snapshots(ec2, config):
            ec2.delete_snapshot(SnapshotId=snapshot.id)


def remains(config_path: Path) -> tuple[str, ...]:
    """Return what the services still list of the cluster."""
    config = load(config_path)
    with connected(config) as clients:
        snapshots = head_volume.snapshots(clients.client("ec2"), config)
        return (
            *map(str, find_resources(clients, config)),
            *(f"snapshot {snapshot.id}" for snapshot in snapshots),
        )


def own_images() -> list[str]:
    """Return patterns of the toolkit's image names."""
    return [f"toolkit-{kind}-*" for kind in names.IMAGE_KINDS]


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Answer ^C and SIGTERM with a line instead of an exception."""

    def refuse(_number: int, _frame: object) -> None:
        say("cleaning up first; kill -9 leaves instances that cost money")

    before = {number: signal.signal(number, refuse) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def say(text: str) -> None:
    """Print a line of progress."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
