"""Benchmarks of launches against the same throttled EC2.

The contestants run one after the other.
"""

from __future__ import annotations

import contextlib
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.bench import contest, scontrol, simulated_aws, workload
from toolkit.local.faults import Pattern

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.bench.contest import Figures
    from tests.bench.simulated_aws import SimulatedAws
    from tests.bench.workload import Load

UP = ("ALLOCATED", "CLOUD", "NOT_RESPONDING", "POWERING_UP")


def client(found: SimulatedAws) -> Any:
    import boto3

    return boto3.client(
        "ec2",
        region_name="us-east-1",
        endpoint_url=found.endpoint,
        aws_access_key_id="AKIALOCALCLOUD000000",
        aws_secret_access_key="local",
    )


def slurm(root: Path, load: Load, pool: str) -> scontrol.Stub:
    """Write stubs of a slurmctld that has just requested these nodes."""
    return scontrol.write(root / "slurm", load.names(pool), UP, load.allocated(pool))


def ours(load: Load, limit: float, *, told: bool = True) -> Figures:
    with tempfile.TemporaryDirectory() as place, opened(place, load) as found:
        root = Path(place)
        subnet = simulated_aws.prepare(found, client(found))
        stub = slurm(root, load, workload.OUR_POOL)
        workload.write_ours(root, load, subnet, stub.bin, told=told)
        return our_resume(load, root, found, stub, limit)


@contextlib.contextmanager
def opened(place: str, load: Load) -> Iterator[SimulatedAws]:
    """Open the cloud for a load."""
    with simulated_aws.opened(Path(place) / "cloud", raised=load.raised) as (found, _):
        yield found


def floor(load: Load) -> float:
    """Return the seconds that EC2's own launch rate takes for a load.

    EC2 publishes no such rate for fleets.
    """
    at_once, per_second = simulated_aws.rate(raised=load.raised)
    return 0.0 if load.market.fleet else max(0.0, (load.nodes - at_once) / per_second)


def our_resume(
    load: Load, root: Path, found: SimulatedAws, stub: scontrol.Stub, limit: float
) -> Figures:
    argv = [contest.our_python(), "-I", str(contest.HERE / "ours.py"), "resume", str(root)]
    environment = contest.environment(
        found.endpoint, stub, SLURM_RESUME_FILE=str(root / "resume.json")
    )
    hostlist = load.hostlist(workload.OUR_POOL)
    figures = contest.run(
        "toolkit", [*argv, hostlist], environment, aws=found, stub=stub, limit=limit
    )
    return replace(figures, wanted=load.nodes)


def peer(load: Load, limit: float, *, capacity: bool = True, dns: bool = True) -> Figures:
    with tempfile.TemporaryDirectory() as place, opened(place, load) as found:
        root = Path(place)
        subnet = simulated_aws.prepare(found, client(found), fleet=load.market.fleet)
        if not capacity:
            found.cloud.faults.limit(Pattern(), 0)
        stub = slurm(root, load, workload.PEER_POOL)
        workload.write_peer(root, load, subnet, dns=dns)
        environment = contest.environment(
            found.endpoint,
            stub,
            SLURM_RESUME_FILE=str(root / "resume.json"),
            CONFIG_FILE=str(root / "resume.conf"),
            SLURM_BINARIES_DIR=str(stub.bin),
            PEER_LOG=str(root / "peer.log"),
        )
        argv = [
            contest.peer_python(),
            str(contest.HERE / "peer.py"),
            load.hostlist(workload.PEER_POOL),
        ]
        figures = contest.run(
            "parallelcluster", argv, environment, aws=found, stub=stub, limit=limit
        )
        return replace(figures, wanted=load.nodes)


def hop(limit: float) -> tuple[float, Figures]:
    """Measure the seconds from a refused offering to the next request.

    The first offering has no capacity.
    """
    load = workload.Load(1, 8)
    with tempfile.TemporaryDirectory() as place, opened(place, load) as found:
        root = Path(place)
        subnet = simulated_aws.prepare(found, client(found))
        found.cloud.faults.limit(Pattern.parse("spot"), 0)
        stub = slurm(root, load, workload.OUR_POOL)
        workload.write_ours(root, load, subnet, stub.bin, workload.SPOT, workload.ON_DEMAND)
        figures = our_resume(load, root, found, stub, limit)
        tried = [one for one in found.served if one.action in simulated_aws.LAUNCHES]
        success = next(one for one in tried if one.started)
        return max(0.0, success.began - tried[0].ended), figures
