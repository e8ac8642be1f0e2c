"""The head's silence: each state of reconcile's last pass."""

from __future__ import annotations

import pytest

from slurmplugins.head.silence import OLDEST_PASS, silence_reason
from slurmplugins.reconciler.pass_state import LastPass

NOW = 1_795_000_000.0


@pytest.mark.parametrize("age", [0.0, 15.0, OLDEST_PASS])
def test_a_head_whose_last_pass_did_its_work_is_not_silent(age: float):
    assert silence_reason(LastPass(NOW - age, warnings=("gpu-001 waits",)), NOW) == ""


@pytest.mark.parametrize(
    ("last_pass", "reason"),
    [
        (LastPass(), "reconcile has not run yet"),
        (LastPass(NOW - 400), "reconcile has not run for 400 s"),
        (LastPass(NOW, "nothing is done: slurm-unreachable"), "reconcile is blocked: nothing"),
    ],
)
def test_a_head_that_does_nothing_is_silent(last_pass: LastPass, reason: str):
    assert silence_reason(last_pass, NOW).startswith(reason)
