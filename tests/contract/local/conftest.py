"""A local cloud in this process, without machines, behind a socket of its own."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from botocore.config import Config

from toolkit.local.cloud import Cloud
from toolkit.local.machines.driver import Completed
from toolkit.local.machines.none import NoneDriver
from toolkit.local.options import Options
from toolkit.local.shelves import MEMORY_BASE, MemoryShelf
from toolkit.local.sockets import Listeners, bind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Clock:
    """A clock that can be moved forward; it also goes by itself."""

    def __init__(self, base: Callable[[], float]) -> None:
        self._base = base
        self.offset = 0.0

    def __call__(self) -> float:
        return self._base() + self.offset


class TalkingDriver(NoneDriver):
    """No machines, but commands are answered, and machines can be switched off."""

    def __init__(self) -> None:
        super().__init__()
        self.ran: list[tuple[str, bytes]] = []
        self.snapshots: list[tuple[str, str]] = []

    def execute(self, instance_id, argv, *, timeout, stdin=b""):
        self.ran.append((instance_id, stdin))
        return Completed(3 if b"fail" in stdin else 0, b"out\n", b"err\n" * (b"fail" in stdin))

    def console(self, instance_id):
        return f"console of {instance_id}\n".encode()

    def snapshot(self, instance_id, image_id):
        self.snapshots.append((instance_id, image_id))


@dataclass
class Local:
    """The local cloud and how to talk to it."""

    cloud: Cloud
    endpoint: str
    driver: TalkingDriver
    clock: Clock
    wall: Clock
    image: str = MEMORY_BASE

    def client(self, service: str, *, retries: int = 0) -> Any:
        return boto3.client(
            service,
            region_name="us-east-1",
            endpoint_url=self.endpoint,
            aws_access_key_id="AKIALOCALCLOUD000000",
            aws_secret_access_key="local",
            config=Config(retries={"total_max_attempts": 1 + retries}),
        )

    def settle(self) -> None:
        """Let every instance reach the state it is on its way to."""
        for _ in range(200):
            self.cloud.keeper.tick()
            lives = list(self.cloud.tables.lives.values())
            if all(life.state in ("running", "stopped", "terminated") for life in lives):
                return
            time.sleep(0.005)
        raise AssertionError("instances did not settle")

    def pass_time(self, seconds: float) -> None:
        """Move both clocks forward."""
        self.clock.offset += seconds
        self.wall.offset += seconds

    def until(self, condition: Callable[[], Any], seconds: float = 20.0) -> Any:
        """Return the condition's value once it is true, looking after machines meanwhile."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.cloud.keeper.tick()
            value = condition()
            if value:
                return value
            time.sleep(0.01)
        raise AssertionError("this did not come true")


@pytest.fixture
def local_options() -> dict[str, Any]:
    """Settings a test changes by overriding this."""
    return {"throttle": False}


@pytest.fixture
def local(tmp_path, local_options) -> Iterator[Local]:
    bound = bind("127.0.0.1", 0)
    port = bound.getsockname()[1]
    options = Options(state=tmp_path, port=port, driver="none", shutdown_grace=0.0, **local_options)
    driver = TalkingDriver()
    clock, wall = Clock(time.monotonic), Clock(time.time)
    listeners = Listeners()
    workers = ThreadPoolExecutor(2)
    with Cloud(options, driver, MemoryShelf(), clock=clock, wall=wall, workers=workers) as cloud:
        listeners.add("host", bound, cloud.front)
        thread = threading.Thread(target=listeners.run, daemon=True)
        thread.start()
        yield Local(cloud, f"http://127.0.0.1:{port}", driver, clock, wall)
        listeners.stop()
        thread.join()


@pytest.fixture
def ec2(local) -> Any:
    return local.client("ec2")


@pytest.fixture
def subnet(ec2) -> str:
    """A private subnet in us-east-1a."""
    vpc = ec2.create_vpc(CidrBlock="10.42.0.0/16")["Vpc"]["VpcId"]
    made = ec2.create_subnet(VpcId=vpc, CidrBlock="10.42.1.0/24", AvailabilityZone="us-east-1a")
    return made["Subnet"]["SubnetId"]


@pytest.fixture
def launch(local, ec2, subnet) -> Callable[..., list[dict[str, Any]]]:
    """Run instances of one type in the subnet."""

    def run(count: int = 1, **more: Any) -> list[dict[str, Any]]:
        request = {
            "ImageId": local.image,
            "InstanceType": "g5.xlarge",
            "MinCount": count,
            "MaxCount": count,
            "SubnetId": subnet,
            **more,
        }
        return ec2.run_instances(**{k: v for k, v in request.items() if v is not None})["Instances"]

    return run
