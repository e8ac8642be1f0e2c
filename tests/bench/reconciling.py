"""Benchmarks of reconcile and suspend at scale, through the real adapters.

EC2's answer to DescribeInstances is the local cloud's own for 1,000 instances. It is repeated under
other ids, page by page. scontrol's answer has every key of 24.11 for each node. The journal is a
busy day's.
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from tests.bench import busy_journal, contest, launching, scontrol, simulated_aws, workload

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.bench.contest import Figures
    from tests.bench.scontrol import Stub
    from tests.bench.simulated_aws import Gate, SimulatedAws

PAGE = 1000
_NODES = re.compile(rf"{workload.OUR_POOL}-(?:\d+|\[[\d,-]+\])")
RUNNING = ("ALLOCATED", "CLOUD")
GOING = ("CLOUD", "IDLE", "POWERING_DOWN")


def program(
    name: str, root: Path, found: SimulatedAws, stub: Stub, limit: float, *more: str
) -> Figures:
    argv = [contest.our_python(), "-I", str(contest.HERE / "ours.py"), name, str(root), *more]
    environment = contest.environment(found.endpoint, stub)
    return contest.run("toolkit", argv, environment, aws=found, stub=stub, limit=limit)


def launched(root: Path, found: SimulatedAws, load: workload.Load, limit: float) -> Stub:
    """Launch a load's instances with resume itself."""
    subnet = simulated_aws.prepare(found, launching.client(found))
    stub = launching.slurm(root, load, workload.OUR_POOL)
    workload.write_ours(root, load, subnet, stub.bin)
    launching.our_resume(load, root, found, stub, limit)
    return stub


def again(root: Path, names: list[str], state: tuple[str, ...]) -> Stub:
    """Write Slurm's later state; its earlier calls are not counted."""
    shutil.rmtree(root / "slurm")
    return scontrol.write(root / "slurm", names, state, {})


def suspend(nodes: int, limit: float) -> Figures:
    load = workload.Load(1, nodes)
    with (
        tempfile.TemporaryDirectory() as place,
        simulated_aws.opened(Path(place) / "cloud") as (found, _),
    ):
        root = Path(place)
        launched(root, found, load, limit)
        stub = again(root, load.names(workload.OUR_POOL), GOING)
        found.served.clear()
        return program("suspend", root, found, stub, limit, load.hostlist(workload.OUR_POOL))


def reconcile(nodes: int, limit: float) -> Figures:
    """Measure a pass over instances that an earlier pass has recorded.

    Nearly all passes are like this.
    """
    with tempfile.TemporaryDirectory() as place, _running(Path(place), nodes, limit) as found:
        root = Path(place)
        names = workload.Load(1, nodes).names(workload.OUR_POOL)
        stub = again(root, names, RUNNING)
        program("reconcile-unwritten", root, found, stub, limit)
        stub = again(root, names, RUNNING)
        found.served.clear()
        return program("reconcile", root, found, stub, limit)


def first_sight(nodes: int, limit: float) -> Figures:
    """Measure a pass over instances that no pass has recorded.

    It writes the instance ledger of each.
    """
    with tempfile.TemporaryDirectory() as place, _running(Path(place), nodes, limit) as found:
        stub = again(Path(place), workload.Load(1, nodes).names(workload.OUR_POOL), RUNNING)
        found.served.clear()
        return program("reconcile", Path(place), found, stub, limit)


@contextlib.contextmanager
def _running(root: Path, nodes: int, limit: float) -> Iterator[SimulatedAws]:
    base = workload.Load(1, min(PAGE, nodes))
    with simulated_aws.opened(root / "cloud", throttled=False) as (found, gate):
        launched(root, found, base, limit)
        ids = _repeat(found, gate, nodes // base.nodes)
        busy_journal.write(
            root / "state",
            list(zip(workload.Load(1, nodes).names(workload.OUR_POOL), ids, strict=True)),
        )
        settings = json.loads((root / "burst.json").read_text())
        settings["pools"][workload.OUR_POOL]["nodes"] = workload.Load(1, nodes).hostlist(
            workload.OUR_POOL
        )
        (root / "burst.json").write_text(json.dumps(settings))
        yield found


def _repeat(found: SimulatedAws, gate: Gate, pages: int) -> list[str]:
    """Repeat the cloud's own page of DescribeInstances under other ids.

    Returns the ids.
    """
    keep: list[bytes] = []
    client = launching.client(found)
    client.meta.events.register("after-call.ec2", lambda http_response, **_: keep.append(
        http_response.content))  # fmt: skip
    client.describe_instances(
        Filters=[{"Name": "tag:toolkit:cluster", "Values": ["demo"]}], MaxResults=PAGE
    )
    gate.canned["DescribeInstances"] = [
        _page(keep[-1].decode(), number, last=number == pages - 1) for number in range(pages)
    ]
    text = b"".join(gate.canned["DescribeInstances"]).decode()
    return re.findall(r"<instanceId>(i-[0-9a-f]+)", text)


def _later(hostlist: str, by: int) -> str:
    return re.sub(r"\d+", lambda found: str(int(found[0]) + by), hostlist)


def _page(text: str, number: int, *, last: bool) -> bytes:
    shifted = _NODES.sub(lambda found: _later(found[0], number * PAGE), text)
    renamed = re.sub(r"<instanceId>i-..", f"<instanceId>i-{number:02x}", shifted)
    running = renamed.replace(
        "<code>0</code><name>pending</name>", "<code>16</code><name>running</name>"
    )
    running = re.sub(r"<nextToken>.*?</nextToken>|<nextToken\s*/>", "", running)
    token = "" if last else f"<nextToken>{number + 1}</nextToken>"
    return running.replace(
        "</DescribeInstancesResponse>", f"{token}</DescribeInstancesResponse>"
    ).encode()
