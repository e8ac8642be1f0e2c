"""A run of a contestant, with a time limit and its figures."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.bench.scontrol import Stub
    from tests.bench.simulated_aws import SimulatedAws

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PEER_VENV = ROOT / ".bench-venv"
PEER = "aws-parallelcluster-node==3.16.1"
SLURM2SQL = "slurm2sql==0.9.9"


@dataclass(frozen=True)
class Figures:
    """The figures of one run.

    `calls` are AWS calls by service. `done` says that the run reached its end. `wanted` is the
    number of instances that it was to start.
    """

    who: str
    wall: float
    cpu: float
    peak_mb: float
    ec2: int
    launches: int
    refused: int
    other_aws: int
    scontrol: int
    instances: int
    done: bool
    wanted: int = 0

    @property
    def short(self) -> bool:
        """Tell whether the run ended by itself without all instances."""
        return self.done and self.instances < self.wanted

    @property
    def calls(self) -> int:
        return self.ec2 + self.other_aws + self.scontrol


def run(
    who: str,
    argv: Sequence[str],
    environment: Mapping[str, str],
    *,
    aws: SimulatedAws,
    stub: Stub,
    limit: float,
) -> Figures:
    """Run a contestant to its end or its limit.

    The limit is in seconds. The figures count the run's calls.
    """
    began = time.monotonic()
    try:
        done = subprocess.run(
            argv, env=dict(environment), capture_output=True, check=False, timeout=limit
        )
    except subprocess.TimeoutExpired:
        done = None
    wall = time.monotonic() - began
    if done is not None and done.returncode:
        raise RuntimeError(f"{who} failed: {done.stderr.decode()[-2000:]}")
    said = json.loads(done.stdout) if done is not None else {"cpu": 0.0, "peak_mb": 0.0}
    ec2 = aws.counts("ec2")
    return Figures(
        who=who,
        wall=wall,
        cpu=said["cpu"],
        peak_mb=said["peak_mb"],
        ec2=sum(ec2.values()),
        launches=ec2["RunInstances"] + ec2["CreateFleet"],
        refused=aws.refused("ec2") + aws.refused("route53"),
        other_aws=sum(aws.counts("dynamodb").values()) + sum(aws.counts("route53").values()),
        scontrol=stub.calls(),
        instances=aws.alive(),
        done=done is not None,
    )


def environment(endpoint: str, stub: Stub, **more: str) -> dict[str, str]:
    return {
        "PATH": f"{stub.bin}:/usr/bin:/bin",
        "AWS_ACCESS_KEY_ID": "AKIALOCALCLOUD000000",
        "AWS_SECRET_ACCESS_KEY": "local",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_EC2_METADATA_DISABLED": "true",
        **more,
    }


def our_python() -> str:
    """Return the interpreter that our programs run on.

    They need boto3 and the standard library alone. TOOLKIT_BENCH_PYTHON may name another
    interpreter, such as a head node's.
    """
    return os.environ.get("TOOLKIT_BENCH_PYTHON", sys.executable)


def peer_python() -> str:
    """Return the peers' interpreter.

    Their virtualenv is made on first use, outside of ours.
    """
    python = PEER_VENV / "bin" / "python"
    complete, peers = PEER_VENV / ".complete", [PEER, SLURM2SQL]
    if not complete.exists() or complete.read_text().split() != peers:
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(PEER_VENV)], check=True)
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, *peers], check=True, env={**os.environ}, stderr=subprocess.DEVNULL)
        complete.write_text("\n".join(peers))
    return str(python)
