"""The service on head and compute nodes that sends their logs to CloudWatch, as root.

The cluster's log group is in node.json or burst.json. Without one the service ends at once.
At SIGTERM, as systemd sends it at a shutdown, it sends what is left.
"""

from __future__ import annotations

import random
import signal
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from slurmplugins.cloud.client import client
from slurmplugins.cloud.log_stream import LogStreams
from slurmplugins.config import burst, node as node_config, paths
from slurmplugins.errors import EngineError, MetadataError
from slurmplugins.logs.journal import Journal
from slurmplugins.logs.log_file import LogFile
from slurmplugins.logs.shipper import Shipper, read_positions
from slurmplugins.logs.stream_name import HEAD, UNIDENTIFIED, OwnStream, stream_name
from slurmplugins.model import json_input
from slurmplugins.node import slurmd_setup
from slurmplugins.node.imds import HttpTransport, Imds
from slurmplugins.system import program
from slurmplugins.system.clock import SystemClock
from slurmplugins.system.command import OutputStream
from slurmplugins.system.log_events import LogEvent

if TYPE_CHECKING:
    from collections.abc import Mapping

    from slurmplugins.logs.source import Source
    from slurmplugins.node.imds import Metadata
    from slurmplugins.system.clock import Clock

DAEMONS: Final = ("slurmctld", "slurmdbd", "slurmd")
PROGRAMS: Final = ("resume", "suspend", "resume-fail", "head-boot", "job-token")
"""The logs of programs that Slurm and cloud-init start. Those of systemd write to the journal."""
USER_DATA_OUTPUT: Final = Path("/var/log/cloud-init-output.log")
BOOT_SECONDS: Final = 90.0
"""Seconds that the first boot has to find out which node the instance is."""


@dataclass(frozen=True, slots=True)
class Destination:
    """The place to which this instance's lines go."""

    region: str
    endpoint_url: str | None
    group: str | None


def destination(settings: node_config.NodeConfig | None) -> Destination:
    """Return a node's destination, or else the head's. Raises ConfigError."""
    if settings is not None:
        return Destination(settings.region, settings.endpoint_url, settings.log_group)
    head = burst.load(paths.BURST)
    return Destination(head.region, head.endpoint_url, head.log_group)


def sources(clock: Clock, positions: Mapping[str, str]) -> list[Source]:
    """Return all sources; files of the other kind of instance never appear."""
    files = [
        *((paths.SLURM_LOGS / f"{name}.log", name) for name in DAEMONS),
        *((paths.LOGS / f"{name}.log", name) for name in PROGRAMS),
        (USER_DATA_OUTPUT, "user-data"),
    ]
    return [
        *(LogFile(path, unit, clock, positions.get(str(path), "")) for path, unit in files),
        Journal(OutputStream, clock, positions.get(Journal.key, "")),
    ]


def own_stream(
    settings: node_config.NodeConfig | None, metadata: Metadata, clock: Clock
) -> OwnStream:
    """Return the stream of this instance: its node's, or the head's."""

    def booted() -> str | None:
        try:
            facts = json_input.loads(paths.INSTANCE.read_bytes())
            return stream_name(str(facts["node"]), str(facts["instance_id"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def identify() -> str:
        if (instance_id := metadata.get("instance-id")) is None:
            raise MetadataError("the metadata service names no instance id")
        if settings is None:
            return stream_name(HEAD, instance_id)
        try:
            return stream_name(slurmd_setup.identify(metadata, settings).node, instance_id)
        except EngineError:
            return stream_name(UNIDENTIFIED, instance_id)

    return OwnStream(booted, identify, clock, patience=BOOT_SECONDS if settings else 0.0)


def main() -> None:
    log = program.open_log("log-shipper")

    def work() -> None:
        settings = node_config.load() if paths.NODE.exists() else None
        target = destination(settings)
        if target.group is None:
            return
        clock = SystemClock()
        ending = threading.Event()
        signal.signal(signal.SIGTERM, lambda *_: ending.set())
        log.info(LogEvent.PROGRAM_STARTED, group=target.group)
        Shipper(
            sources=sources(clock, read_positions(paths.LOG_POSITIONS)),
            stream=LogStreams(
                target.group, lambda: client("logs", target.region, target.endpoint_url), clock
            ),
            name=own_stream(settings, Imds(HttpTransport(), clock), clock),
            positions=paths.LOG_POSITIONS,
            clock=clock,
            log=log,
            jitter=lambda: 0.5 + random.random(),  # noqa: S311 - no secret
        ).run(ending.wait)

    raise SystemExit(program.run_to_exit_code(log, work))


if __name__ == "__main__":
    main()
