"""The head's silence: each state of reconcile's last pass, and a full data volume."""

from __future__ import annotations

import pytest

from slurmplugins.head.silence import OLDEST_PASS, silence_reason
from slurmplugins.model.data_volume import LEAST_FREE, FreeShares
from slurmplugins.reconciler.pass_state import LastPass

NOW = 1_795_000_000.0
ROOMY = FreeShares(space=LEAST_FREE, inodes=LEAST_FREE)


@pytest.mark.parametrize("age", [0.0, 15.0, OLDEST_PASS])
def test_a_head_whose_last_pass_did_its_work_is_not_silent(age: float):
    last_pass = LastPass(NOW - age, warnings=("gpu-001 waits",))
    assert silence_reason(last_pass, ROOMY, NOW) == ""


@pytest.mark.parametrize(
    ("last_pass", "reason"),
    [
        (LastPass(), "reconcile has not run yet"),
        (LastPass(NOW - 400), "reconcile has not run for 400 s"),
        (LastPass(NOW, "nothing is done: slurm-unreachable"), "reconcile is blocked: nothing"),
    ],
)
def test_a_head_that_does_nothing_is_silent(last_pass: LastPass, reason: str):
    assert silence_reason(last_pass, ROOMY, NOW).startswith(reason)


@pytest.mark.parametrize("free", [FreeShares(0.02, 0.9), FreeShares(0.9, 0.02)])
def test_a_head_that_can_soon_save_no_state_is_silent(free: FreeShares):
    """Tell of it while slurmctld still runs.

    It only logs that a save failed.
    """
    assert silence_reason(LastPass(NOW), free, NOW).startswith("/srv/head has 2.0 % of its ")


def test_a_head_whose_data_volume_cannot_be_read_is_silent():
    assert silence_reason(LastPass(NOW), None, NOW) == "/srv/head can't be read"


def test_a_blocked_reconcile_comes_before_a_full_volume():
    reason = silence_reason(LastPass(NOW, "no EC2"), FreeShares(0.0, 0.0), NOW)
    assert reason == "reconcile is blocked: no EC2"
