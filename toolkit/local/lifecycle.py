"""Starts and stops the local cloud. Both may be repeated, also after a kill -9."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from toolkit.errors import LocalError, PreflightFailed
from toolkit.local.billing.usage_log import UsageLog
from toolkit.local.client import Client
from toolkit.local.daemon_files import RunningDaemon, StateFiles
from toolkit.local.machines import cleanup, factory, host_limits, preflight
from toolkit.local.machines.errors import MachineError
from toolkit.local.machines.layout import Layout
from toolkit.local.options import ADMIN_KEY, Options

_START_PATIENCE = 120.0  # seconds for the daemon to import moto and listen, on a busy machine
_END_PATIENCE = 90.0  # seconds for the daemon to end its machines
_POLL = 0.1
_LOG_SHOWN = 2000  # characters of the daemon's log worth showing

Report = Callable[[str, str], None]


@dataclass(frozen=True, slots=True)
class RunningCloud:
    """A local cloud that answers; `started` False when it ran already."""

    endpoint: str
    pid: int
    started: bool
    limitations: tuple[str, ...] = ()  # what this host lacks to be as strict as AWS


def up(options: Options, report: Report) -> RunningCloud:
    """Check the host, start the daemon, and wait until it answers.

    The base image is built if necessary. `report(phase, detail)` is called with
    progress. PreflightFailed lists everything that the host lacks; nothing has been
    changed then.
    """
    options = replace(options, state=options.state.absolute())
    files = StateFiles(options.state)
    daemon = files.running()
    if daemon is not None:
        return _use_running(options, daemon)
    layout = Layout(options.state)
    limitations: tuple[str, ...] = ()
    if options.driver != "none":
        report("check", "this host")
        limitations = _check_host(layout, options.port)
        host_limits.raise_inotify_limit()
        report("clean", "what an earlier run left")
        _clean(layout)
        report("image", "base")
        _build_base(layout, report)
    _write_credentials(options)
    report("start", "the daemon")
    pid = _start_daemon(options, files)
    return RunningCloud(Client(options.port).endpoint, pid, started=True, limitations=limitations)


def _check_host(layout: Layout, port: int) -> tuple[str, ...]:
    """Return the host's limitations. Raises PreflightFailed if it can't run machines."""
    problems = preflight.check(layout, port=port)
    if problems:
        raise PreflightFailed(
            "this host can't run machines:\n" + "\n".join(f"  {problem}" for problem in problems),
            next_step="fix these and run: toolkit local up",
        )
    return tuple(str(limitation) for limitation in preflight.limitations(layout))


def _use_running(options: Options, daemon: RunningDaemon) -> RunningCloud:
    running = daemon.options
    if (running.port, running.driver) != (options.port, options.driver):
        raise LocalError(
            f"a local cloud with driver {running.driver} runs already, on port {running.port}",
            next_step="end it first: toolkit local down",
        )
    client = Client(running.port)
    client.get("health")
    return RunningCloud(client.endpoint, daemon.pid, started=False)


def _build_base(layout: Layout, report: Report) -> None:
    try:
        factory.base_builder(layout).build(report)
    except MachineError as error:
        raise LocalError(
            f"the base image could not be built: {error}",
            next_step="check the network and the apt configuration, then: toolkit local up",
        ) from error


def _write_credentials(options: Options) -> None:
    """Write a profile `local` for AWS tools.

    It has no secret, since no signature is checked.
    """
    path = options.state / "aws" / "credentials"
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    path.touch(mode=0o600)
    path.write_text(f"[local]\naws_access_key_id = {ADMIN_KEY}\naws_secret_access_key = local\n")


def _start_daemon(options: Options, files: StateFiles) -> int:
    """Start the daemon in its own session; wait until it answers."""
    files.root.mkdir(mode=0o755, parents=True, exist_ok=True)
    argv = [sys.executable, "-m", "toolkit.local.daemon", "--detach", options.to_json()]
    with files.log.open("ab") as log:
        try:
            output = subprocess.run(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                timeout=_START_PATIENCE,
                check=False,
                cwd="/",
                env=_environment(),
            ).stdout.split()
        except subprocess.TimeoutExpired:
            output = []
    match output:
        case [pid, b"ready"]:
            return int(pid)
        case _:
            raise LocalError(f"the local cloud's daemon did not start:\n{_tail(files.log)}")


def _environment() -> dict[str, str]:
    """Return an environment in which the daemon finds this package.

    It does so from any directory.
    """
    package_root = str(Path(__file__).resolve().parents[2])
    python_path = os.environ.get("PYTHONPATH")
    return {
        **os.environ,
        "PYTHONPATH": f"{package_root}{os.pathsep}{python_path}" if python_path else package_root,
    }


def down(state: Path, report: Report) -> cleanup.Remains:
    """End the daemon and every machine; remove their files.

    Images, consoles and cache stay.
    """
    state = state.absolute()
    files = StateFiles(state)
    daemon = files.running()
    if daemon is not None:
        report("stop", f"the daemon ({daemon.pid})")
        _stop_daemon(files, daemon)
    layout = Layout(state)
    if not state.exists():
        return cleanup.Remains((), (), (), ())
    report("clean", "machines, networks and mounts")
    remains = _clean(layout)
    UsageLog(state).end_all(int(time.time()))  # a killed daemon could not
    files.record.unlink(missing_ok=True)
    return remains


def _stop_daemon(files: StateFiles, daemon: RunningDaemon) -> None:
    for signal_number, patience in ((signal.SIGTERM, _END_PATIENCE), (signal.SIGKILL, 5.0)):
        try:
            os.kill(daemon.pid, signal_number)
        except ProcessLookupError:
            return
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline:
            if files.running() is None and _has_ended(daemon.pid):
                return
            time.sleep(_POLL)
    raise LocalError(f"process {daemon.pid} survives SIGKILL")


def _has_ended(pid: int) -> bool:
    """Return whether the process has ended, collected or not.

    The daemon releases its lock a moment before its end, and its parent may collect it
    late.
    """
    try:
        return ") Z " in Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except OSError:
        return True


def _clean(layout: Layout) -> cleanup.Remains:
    """Remove the machines and file systems that a killed daemon left."""
    if os.geteuid() != 0:
        if _has_machines(layout):
            raise LocalError(
                "a killed local cloud left machines, and only root can end them",
                next_step="run it again as root",
            )
        return cleanup.Remains((), (), (), ())
    try:
        remains = cleanup.remove_everything(layout)
    except MachineError as error:
        raise LocalError(f"not everything could be removed: {error}") from error
    for directory in layout.filesystems.glob("fs-*"):
        shutil.rmtree(directory, ignore_errors=True)
    shutil.rmtree(layout.volumes, ignore_errors=True)
    return remains


def _has_machines(layout: Layout) -> bool:
    try:
        return any(layout.instances.iterdir())
    except FileNotFoundError:
        return False
    except PermissionError:
        return True  # root's, as every machine is


def _tail(path: Path) -> str:
    try:
        return path.read_text(errors="replace")[-_LOG_SHOWN:]
    except FileNotFoundError:
        return ""
