"""One contestant's run: start it, bound it, and say what it took."""

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


@dataclass(frozen=True)
class Figures:
    """What one run took. `calls` are AWS calls by service; `done` says that it reached its end, and
    `wanted` how many instances it was asked for.
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
    machines: int
    done: bool
    wanted: int = 0

    @property
    def short(self) -> bool:
        """Whether it came to an end of its own without all instances."""
        return self.done and self.machines < self.wanted

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
    """Run it to its end, or until `limit` seconds are over, and count what it did."""
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
        machines=aws.alive(),
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
    """Ours runs with boto3 and the standard library alone: TOOLKIT_BENCH_PYTHON may be another
    interpreter, such as the one that a head node has.
    """
    return os.environ.get("TOOLKIT_BENCH_PYTHON", sys.executable)


def peer_python() -> str:
    """The peer's interpreter; its virtualenv is made on first use, outside of ours."""
    python = PEER_VENV / "bin" / "python"
    if not (PEER_VENV / ".complete").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(PEER_VENV)], check=True)
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", PEER]
        subprocess.run(pip, check=True, env={**os.environ}, stderr=subprocess.DEVNULL)
        (PEER_VENV / ".complete").touch()
    return str(python)
