"""The choice of the controller that acts, of several."""

from __future__ import annotations

import pytest

from slurmplugins.slurm.controllers import is_active
from tests.fakes.runner import FakeRunner

PING = "Slurmctld(primary) at {} is {}\nSlurmctld(backup) at {} is {}\n"


@pytest.mark.parametrize(
    ("answer", "active"),
    [
        (PING.format("ctl1", "UP", "ctl2", "UP"), "ctl1"),
        (PING.format("ctl1.lab.example", "DOWN", "ctl2.lab.example", "UP"), "ctl2"),
        (PING.format("ctl1", "DOWN", "ctl2", "DOWN"), ""),
        ("slurm_load: connection refused\n", ""),
    ],
)
def test_one_of_two_controllers_acts(answer, active):
    runner = FakeRunner()
    runner.answer("/opt/slurm/bin/scontrol", "ping", stdout=answer)
    acting = [
        host for host in ("CTL1", "ctl2.lab.example") if is_active(runner, "/opt/slurm/bin", host)
    ]
    assert [host.partition(".")[0].lower() for host in acting] == ([active] if active else [])
