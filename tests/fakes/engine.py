"""The whole engine on fakes, from which most tests start."""

from __future__ import annotations

import dataclasses
import json
import pickle
from typing import TYPE_CHECKING

from slurmplugins.config import burst as burst_config
from slurmplugins.execution.engine import Engine
from slurmplugins.slurm import agent_requests
from slurmplugins.state.journal import Journal
from slurmplugins.state.unavailable_offerings import UnavailableOfferings
from slurmplugins.system.files import write_atomically
from slurmplugins.system.logger import Log
from tests.fakes.clock import FakeClock
from tests.fakes.cloud import FakeCloud, FakeStore
from tests.fakes.slurm import FakeSlurm

if TYPE_CHECKING:
    from pathlib import Path

SPOT_A = "spot:g5.xlarge:us-east-1a"
SPOT_B = "spot:g5.xlarge:us-east-1b"
ON_DEMAND = "on-demand:g5.xlarge:us-east-1a"


def burst(nodes: str = "gpu-[001-008]", **more: object) -> dict[str, object]:
    """Return a burst.json with two pools.

    The first pool has three offerings, the second has one.
    """
    zones = {"us-east-1a": "subnet-a", "us-east-1b": "subnet-b"}
    offerings = [
        {"type": "g5.xlarge", "capacity": "spot", "zone": "us-east-1a", "price": "0.4024"},
        {"type": "g5.xlarge", "capacity": "spot", "zone": "us-east-1b", "price": "0.4100"},
        {"type": "g5.xlarge", "capacity": "on-demand", "zone": "us-east-1a", "price": "1.006"},
    ]
    pool = {"partition": "spot", "subnets": zones}
    return {
        "version": 1,
        "cluster": "demo",
        "region": "us-east-1",
        "endpoint_url": None,
        "slurm": {"bin": "/usr/bin", "resume_timeout": 180},
        "bucket": "demo-bucket",
        "pools": {
            "gpu": {
                **pool, "nodes": nodes, "launch_template": "demo-gpu", "offerings": offerings
            },
            "cpu": {
                **pool,
                "nodes": "cpu-[1-4]",
                "launch_template": "demo-cpu",
                "offerings": [{**offerings[2], "type": "m7i.large", "price": "0.1"}],
            },
        },
        **more,
    }  # fmt: skip


def places(known: burst_config.BurstConfig) -> dict[str, str]:
    """Return the zone of each subnet.

    A launch template that names its subnet is among the keys.
    """
    by_zone = [
        (zone, place)
        for pool in known.pools.values()
        for zone, place in (*pool.subnets.items(), *pool.zone_templates.items())
    ]
    return {place: zone for zone, place in by_zone}


class Bench:
    """An engine, its fakes, and its log lines."""

    def __init__(self, state: Path, clock: FakeClock | None = None, **more: object) -> None:
        self.clock = clock or FakeClock()
        self.config = burst_config.parse(burst(**more))  # type: ignore[arg-type]
        self.cloud = FakeCloud(self.config.cluster, self.clock)
        self.cloud.places = places(self.config)
        self.slurm = FakeSlurm(self.clock)
        self.slurm.define(self.config.pool_by_node)
        self.store = FakeStore()
        self.lines: list[str] = []
        self.duds: set[str] = set()
        (state / "stop").mkdir(exist_ok=True)
        self.engine = Engine(
            config=self.config,
            cloud=self.cloud,
            store=self.store,
            slurm=self.slurm,
            journal=Journal(state, self.clock),
            unavailable_offerings=UnavailableOfferings(state / "offerings.json", self.clock),
            clock=self.clock,
            log=Log(self.lines.append, self.clock),
            state=state,
            stop_requests=state / "stop",
            login_reports=state / "login-nodes",
        )

    def events(self, name: str) -> list[dict[str, object]]:
        return [item for item in map(json.loads, self.lines) if item["event"] == name]

    def restart(self) -> None:
        """Replace the engine by a new process on the same state directory."""
        self.engine = dataclasses.replace(
            self.engine,
            journal=Journal(self.engine.state, self.clock),
            unavailable_offerings=UnavailableOfferings(
                self.engine.state / "offerings.json", self.clock
            ),
        )

    def save(self, path: Path) -> None:
        """Save the fakes for another process, in one atomic write."""
        world = (self.clock, self.cloud, self.slurm, self.store, self.duds)
        write_atomically(path, pickle.dumps(world), mode=0o600)

    def load(self, path: Path) -> None:
        """Load the fakes that another process saved."""
        self.clock, self.cloud, self.slurm, self.store, self.duds = pickle.loads(  # noqa: S301
            path.read_bytes()
        )
        self.engine = dataclasses.replace(
            self.engine,
            cloud=self.cloud,
            slurm=self.slurm,
            store=self.store,
            clock=self.clock,
            log=Log(self.lines.append, self.clock),
        )
        self.restart()

    def boot(self) -> None:
        """Register each live instance whose boot works.

        The other nodes do not respond.
        """
        machines = self.cloud.machines
        live = [
            item
            for item in self.cloud.live()
            if machines[item.id].cluster == self.config.cluster and item.id not in self.duds
        ]
        self.slurm.silence(self.slurm.state.keys() - {item.node for item in live})
        for machine in live:
            if machine.node is not None and self._registers(machine.node, machine.id):
                self.slurm.register(machine.node, machine.id, machine.address, machine.launched_at)

    def _registers(self, node: str, machine: str) -> bool:
        """Tell whether slurmd registers now.

        slurmd registers at its start, and when the node's agent reloads it.
        """
        if self.slurm.forgotten.get(node) != machine:
            return True
        if not agent_requests.read_registration_request(self.engine.stop_requests, node):
            return False
        agent_requests.remove_registration_request(self.engine.stop_requests, node)
        del self.slurm.forgotten[node]
        return True
