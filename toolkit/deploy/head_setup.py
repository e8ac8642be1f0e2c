"""Brings the head node to a bundle, and waits until it is set up."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from slurmplugins.cloud import tags
from toolkit.deploy import names
from toolkit.deploy.boot_progress import BootStatus
from toolkit.deploy.head import Head, find_head
from toolkit.errors import HeadNotReady, ToolkitError
from toolkit.polling import Wait

if TYPE_CHECKING:
    from collections.abc import Callable

    from toolkit.config import ClusterConfig
    from toolkit.deploy.session import Clients
    from toolkit.deploy.storage import Bucket
    from toolkit.output import Phase

BOOT_PROGRAM = "/opt/slurm-toolkit/boot"
POLL_SECONDS = 1.0
SETUP_SECONDS = 2700.0
# A booting head node writes its status within this time; one that has given up never does.
SILENT_SECONDS = 240.0
# head_boot writes after each task; one task (pip, apt) may take this long.
STALE_SECONDS = 900.0
MAX_CONSOLE = 2000


class HeadSetup:
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
        head = find_head(self._clients, self._config)
        if status is None or head is None or status.at < head["LaunchTime"].timestamp():
            return None
        return status

    def is_set_up_from(self, sha: str) -> bool:
        """Return whether the head node is set up from this bundle."""
        status = self.status()
        return status is not None and status.state == "ok" and status.bundle == sha

    def set_up_from(self, sha: str, phase: Phase) -> None:
        """Wait for the head node to set itself up from `sha`.

        The bundle is in the bucket already. A booting head node reads its tag and fetches
        the bundle itself; a running one is started on it. Raises HeadNotReady.
        """
        self._tag_head(sha)
        status = self.status()
        if status is not None and not self._is_running(status, sha):
            if status.state == "ok" and status.bundle == sha:
                return
            self._start_setup(sha)
        self._wait(sha, phase)

    def run_again(self, sha: str, phase: Phase) -> None:
        """Set the head node up again, even if up to date."""
        self._tag_head(sha)
        self._start_setup(sha)
        self._wait(sha, phase)

    def _is_running(self, status: BootStatus, sha: str) -> bool:
        is_recent = self._now() - status.at < STALE_SECONDS
        return status.state == "running" and status.bundle == sha and is_recent

    def _tag_head(self, sha: str) -> None:
        """Tell the head node which bundle it may run.

        Who can only write to the bucket, as the head node itself, can't write this tag.
        """
        instance = find_head(self._clients, self._config)
        if instance is not None:
            self._clients.client("ec2").create_tags(
                Resources=[instance["InstanceId"]], Tags=[{"Key": tags.BUNDLE, "Value": sha}]
            )

    def _start_setup(self, sha: str) -> None:
        # Deleted first, so that the next status is about this set-up.
        self._bucket.delete(names.HEAD_STATUS)
        self._head.start([BOOT_PROGRAM, sha], timeout=SETUP_SECONDS)

    def _wait(self, sha: str, phase: Phase) -> None:
        wait = Wait(SETUP_SECONDS, self._sleep, self._clock, pause=POLL_SECONDS)
        silence = Wait(SILENT_SECONDS, self._sleep, self._clock)
        restart_sent = False
        while True:
            status = self.status()
            if status is not None:
                phase.update(status.task, done=status.done, total=status.total)
                if status.state == "failed":
                    raise self._failure(status.failure)
                if status.state == "ok" and status.bundle == sha:
                    phase.result(f"{status.total} tasks")
                    return
            else:
                phase.update(self._instance_state())
                if not restart_sent and silence.is_over:
                    restart_sent = True
                    self._restart_setup(sha)
            if wait.is_over:
                raise self._failure(f"not set up after {SETUP_SECONDS / 60:.0f} minutes")
            wait.pause()

    def _restart_setup(self, sha: str) -> None:
        try:
            self._head.start([BOOT_PROGRAM, sha], timeout=SETUP_SECONDS)
        except ToolkitError as error:
            raise self._failure(f"it reports no status and takes no commands: {error}") from error

    def _instance_state(self) -> str:
        instance = find_head(self._clients, self._config)
        if instance is None:
            raise self._failure("its instance was terminated")
        state = str(instance["State"]["Name"])
        return "booting" if state == "running" else f"the instance is {state}"

    def _failure(self, problem: str) -> HeadNotReady:
        instance = find_head(self._clients, self._config)
        console = ""
        if instance is not None and self.status() is None:
            response = self._clients.client("ec2").get_console_output(
                InstanceId=instance["InstanceId"]
            )
            console = "\n" + (response.get("Output") or "")[-MAX_CONSOLE:]
        log = f"s3://{self._bucket.name}/{names.HEAD_STATUS.removesuffix('.json')}.log"
        return HeadNotReady(
            f"head node: {problem}{console}".rstrip(),
            next_step=f"read {log}, mend the cause, then run it again",
        )
