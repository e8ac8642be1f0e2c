"""The benchmarks' scontrol and squeue, which answer the engine as slurmctld does."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from slurmplugins.errors import SlurmRefused
from slurmplugins.slurm.scontrol import ScontrolSlurm
from slurmplugins.system.command import SystemRunner
from tests.bench import launching
from tests.bench.workload import OUR_POOL, Load

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def slurm(tmp_path: Path) -> ScontrolSlurm:
    """Two jobs of two nodes that wait for their nodes."""
    return ScontrolSlurm(SystemRunner(), str(launching.slurm(tmp_path, Load(2, 2), OUR_POOL).bin))


def test_scontrol_answers_with_the_named_records_alone(slurm: ScontrolSlurm):
    assert [node.name for node in slurm.nodes()] == [f"gpu-{n}" for n in range(1, 5)]
    assert [node.name for node in slurm.nodes(["gpu-2", "gpu-4"])] == ["gpu-2", "gpu-4"]
    assert [node.name for node in slurm.nodes(["gpu-2"])] == ["gpu-2"]
    assert [job.id for job in slurm.jobs()] == [1000, 1001]
    assert [job.id for job in slurm.jobs(["gpu-3"])] == [1001]
    assert [job.id for job in slurm.ended_jobs()] == [1000, 1001]


def test_a_job_is_held_and_what_there_is_not_is_refused(slurm: ScontrolSlurm):
    slurm.hold(1001)
    slurm.comment(1000, "toolkit: no-capacity")
    with pytest.raises(SlurmRefused):
        slurm.hold(7)
    with pytest.raises(SlurmRefused):
        slurm.nodes(["gpu-9"])
