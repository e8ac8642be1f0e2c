"""Brings the head node to a bundle, and waits until it is set up."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from toolkit.deploy import names
from toolkit.deploy.boot_progress import BootStatus
from toolkit.deploy.head import Head, find
from toolkit.errors import HeadNotReady, ToolkitError

if TYPE_CHECKING:
    from collections.abc import Callable

    from toolkit.config import ClusterConfig
    from toolkit.deploy.session import Clients
    from toolkit.deploy.storage import Bucket
    from toolkit.output import Phase

BOOT = "/opt/slurm-toolkit/boot"
POLL_SECONDS = 1.0
BOOT_SECONDS = 2700.0
# A booting head node writes its status within this time; one that has given up never does.
SILENT_SECONDS = 240.0
# head_boot writes after each task; one task (pip, apt) may take this long.
STALE_SECONDS = 900.0
CONSOLE_SHOWN = 2000


class HeadBoot:
    """The set-up of one head node. Every call may be repeated."""

    def __init__(
        self,
        clients: Clients,
        config: ClusterConfig,
        bucket: Bucket,
        *,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._clients = clients
        self._config = config
        self._bucket = bucket
        self._sleep = sleep
        self._clock = clock
        self._now = now
        self._head = Head(clients, config, sleep=sleep, clock=clock)

    def status(self) -> BootStatus | None:
        """Return the head node's last status.

        A status of an earlier head instance does not count.
        """
        status = BootStatus.parse(self._bucket.read_json(names.HEAD_STATUS))
        head = find(self._clients, self._config)
        if status is None or head is None or status.at < head["LaunchTime"].timestamp():
            return None
        return status

    def is_at(self, sha: str) -> bool:
        """Return whether the head node is set up from this bundle."""
        status = self.status()
        return status is not None and status.state == "ok" and status.bundle == sha

    def bring_to(self, sha: str, phase: Phase) -> None:
        """Wait for the head node to set itself up from `sha`.

        bundle/current names it already. A booting head node fetches the bundle itself;
        a running one is started on it. Raises HeadNotReady.
        """
        status = self.status()
        if status is not None and not self._under_way(status, sha):
            if status.state == "ok" and status.bundle == sha:
                return
            self._tell()
        self._wait(sha, phase)

    def rerun(self, sha: str, phase: Phase) -> None:
        """Set the head node up again, even if up to date."""
        self._tell()
        self._wait(sha, phase)

    def _under_way(self, status: BootStatus, sha: str) -> bool:
        fresh = self._now() - status.at < STALE_SECONDS
        return status.state == "running" and status.bundle == sha and fresh

    def _tell(self) -> None:
        # Deleted first, so that the next status is about this set-up.
        self._bucket.delete(names.HEAD_STATUS)
        self._head.start([BOOT], timeout=BOOT_SECONDS)

    def _wait(self, sha: str, phase: Phase) -> None:
        began = self._clock()
        told = False
        while True:
            status = self.status()
            if status is not None:
                phase.update(status.task, done=status.done, total=status.total)
                if status.state == "failed":
                    raise self._failed(status.failure)
                if status.state == "ok" and status.bundle == sha:
                    phase.result(f"{status.total} tasks")
                    return
            else:
                phase.update(self._machine())
                if not told and self._clock() - began > SILENT_SECONDS:
                    told = True
                    self._try_to_tell()
            if self._clock() - began > BOOT_SECONDS:
                raise self._failed(f"nothing after {BOOT_SECONDS / 60:.0f} minutes")
            self._sleep(POLL_SECONDS)

    def _try_to_tell(self) -> None:
        try:
            self._head.start([BOOT], timeout=BOOT_SECONDS)
        except ToolkitError as error:
            raise self._failed(f"it says nothing, and takes no commands: {error}") from error

    def _machine(self) -> str:
        found = find(self._clients, self._config)
        if found is None:
            raise self._failed("its instance is gone")
        state = str(found["State"]["Name"])
        return "booting" if state == "running" else f"the instance is {state}"

    def _failed(self, why: str) -> HeadNotReady:
        found = find(self._clients, self._config)
        console = ""
        if found is not None and self.status() is None:
            said = self._clients.client("ec2").get_console_output(InstanceId=found["InstanceId"])
            console = "\n" + (said.get("Output") or "")[-CONSOLE_SHOWN:]
        log = f"s3://{self._bucket.name}/{names.HEAD_STATUS.removesuffix('.json')}.log"
        return HeadNotReady(
            f"head node: {why}{console}".rstrip(),
            next_step=f"the whole log is {log}; mend, and run the same command again",
        )
