"""A local cloud in this process, without machines, on its own socket."""

from __future__ import annotations

import contextlib
import json
import threading
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import boto3
from botocore.config import Config

from tests.patience import PROGRAM_SECONDS
from toolkit.local.cloud import Cloud
from toolkit.local.image_registry import MEMORY_BASE, MemoryImageRegistry
from toolkit.local.machines.driver import CommandResult
from toolkit.local.machines.none_driver import NoneDriver
from toolkit.local.options import ADMIN_KEY, Options
from toolkit.local.sockets import Listeners, bind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

FINAL_STATES = ("running", "stopped", "terminated")


class Clock:
    """A clock that runs, and that a test can move forward."""

    def __init__(self, base: Callable[[], float]) -> None:
        self._base = base
        self.offset = 0.0

    def __call__(self) -> float:
        return self._base() + self.offset

    def stop(self, at: float | None = None) -> None:
        """Stop the clock; only a test moves it then.

        The time that the test host needs no longer counts.
        """
        now = self._base() if at is None else at
        self._base = lambda: now


class TalkingDriver(NoneDriver):
    """A driver without machines that answers commands and returns consoles."""

    def __init__(self) -> None:
        super().__init__()
        self.ran: list[tuple[str, bytes]] = []
        self.snapshots: list[tuple[str, str]] = []

    def execute(self, instance_id, argv, *, timeout, stdin=b""):
        self.ran.append((instance_id, stdin))
        return CommandResult(3 if b"fail" in stdin else 0, b"out\n", b"err\n" * (b"fail" in stdin))

    def console(self, instance_id):
        return f"console of {instance_id}\n".encode()

    def snapshot(self, instance_id, image_id):
        self.snapshots.append((instance_id, image_id))


@dataclass
class Local:
    """The local cloud, with its clients and clocks."""

    cloud: Cloud
    endpoint: str
    driver: TalkingDriver
    clock: Clock
    wall: Clock
    image: str = MEMORY_BASE

    def client(self, service: str, **credentials: Any) -> Any:
        """Return a client of the account's owner, or with other credentials."""
        owner = {"aws_access_key_id": ADMIN_KEY, "aws_secret_access_key": "local"}
        return boto3.client(
            service,
            region_name="us-east-1",
            endpoint_url=self.endpoint,
            config=Config(read_timeout=PROGRAM_SECONDS, retries={"total_max_attempts": 1}),
            **(credentials or owner),
        )

    def role_credentials(self, instance_id: str) -> dict[str, Any]:
        """Return the credentials that an instance reads in its metadata."""
        url = f"{self.endpoint}/_imds/{instance_id}/latest"
        ttl = {"X-aws-ec2-metadata-token-ttl-seconds": "60"}
        token = _read(f"{url}/api/token", ttl, "PUT")
        held = {"X-aws-ec2-metadata-token": token}
        place = f"{url}/meta-data/iam/security-credentials/"
        given = json.loads(_read(place + _read(place, held), held))
        return {
            "aws_access_key_id": given["AccessKeyId"],
            "aws_secret_access_key": given["SecretAccessKey"],
            "aws_session_token": given["Token"],
        }

    def settle(self) -> None:
        """Wait until every instance has reached its final state."""
        self.until(self._are_states_final)

    def _are_states_final(self) -> bool:
        # Under the lock: an instance is terminated first, and gets the time of its end after that.
        with self.cloud.tables.lock:
            return all(instance.state in FINAL_STATES for instance in self.instances())

    def instances(self) -> list[Any]:
        return list(self.cloud.tables.instances.values())

    def pass_time(self, seconds: float) -> None:
        """Move both clocks forward, and do all that is due by then."""
        self.clock.offset += seconds
        self.wall.offset += seconds
        self.cloud.machine_controller.tick()
        self.settle()

    def until(self, condition: Callable[[], Any], seconds: float = PROGRAM_SECONDS) -> Any:
        """Return the condition's value once it is true.

        The cloud's controller ticks meanwhile.
        """
        deadline = time.monotonic() + seconds
        while (began := time.monotonic()) < deadline:
            self.cloud.machine_controller.tick()
            value = condition()
            if value:
                return value
            # As long as the look took: it has the lock that the work waits for.
            time.sleep(max(0.005, time.monotonic() - began))
        raise AssertionError("this did not come true")


def _read(url: str, headers: dict[str, str], method: str = "GET") -> str:
    request = urllib.request.Request(url, headers=headers, method=method)  # noqa: S310 - http only
    with urllib.request.urlopen(request) as answer:  # noqa: S310 - http only
        return answer.read().decode()


@contextlib.contextmanager
def started(state: Path, **options: Any) -> Iterator[Local]:
    """Run a local cloud; its request rates are off by default."""
    bound = bind("127.0.0.1", 0)
    port = bound.getsockname()[1]
    merged_options = Options(
        **{"throttle": False, "shutdown_grace": 0.0, **options},
        state=state,
        port=port,
        driver="none",
    )
    driver = TalkingDriver()
    clock, wall = Clock(time.monotonic), Clock(time.time)
    listeners = Listeners()
    workers = ThreadPoolExecutor(2)
    with Cloud(
        merged_options, driver, MemoryImageRegistry(), clock=clock, wall=wall, workers=workers
    ) as cloud:
        listeners.add("host", bound, cloud.router)
        thread = threading.Thread(target=listeners.run, daemon=True)
        thread.start()
        try:
            yield Local(cloud, f"http://127.0.0.1:{port}", driver, clock, wall)
        finally:
            listeners.stop()
            thread.join()
