"""The verdict: a pure function of the facts."""

from dataclasses import replace

import pytest

from slurmplugins.fact_sheet import FactSheet, PassFact, StandingFact
from toolkit.deploy.status import Down, Status, engine_trouble

GOOD = Status(
    cluster="demo",
    stack="CREATE_COMPLETE",
    head_instance="i-1",
    head_state="running",
    setup="ok",
    services={"slurmctld": "active", "slurmdbd": "active"},
    slurmctld_answers=True,
    nodes={"idle+powered_down": 4},
    instances={"head": 1},
)


def test_a_cluster_without_trouble_is_healthy():
    """Powered-down nodes are as they should be."""
    assert GOOD.healthy


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"stack": ""}, "cluster demo is not deployed"),
        ({"stack": "UPDATE_ROLLBACK_FAILED"}, "stack is UPDATE_ROLLBACK_FAILED"),
        ({"head_instance": ""}, "there is no head node"),
        ({"head_state": "stopped"}, "head node i-1 is stopped"),
        ({"setup": "running"}, "head node's set-up is running"),
        ({"setup": ""}, "head node's set-up is not reported yet"),
        ({"services": {"slurmdbd": "failed"}}, "slurmdbd is failed"),
        ({"slurmctld_answers": False}, "slurmctld doesn't answer"),
        ({"trouble": ("no agent",)}, "no agent"),
        ({"down": (Down("gpu-001", "Not responding"),)}, "node gpu-001 is down: Not responding"),
    ],
)
def test_each_trouble_is_a_reason(change, reason):
    """One thing wrong is enough, and it is named."""
    status = replace(GOOD, **change)
    assert status.reasons == (reason,)
    assert not status.healthy


def test_an_engine_that_holds_back_or_protects_a_pool_is_trouble():
    """What the engine says of itself reaches the person who asks for the status."""
    assert engine_trouble(FactSheet(at=100, last_pass=PassFact(90))) == []
    held = FactSheet(at=100, last_pass=PassFact(90, "EC2 lists none of 4: not believed"))
    assert engine_trouble(held) == ["reconcile holds back: EC2 lists none of 4: not believed"]
    stale = FactSheet(at=1000, last_pass=PassFact(90))
    assert engine_trouble(stale) == ["reconcile has not looked for 910 s"]
    shut = FactSheet(at=100, standings=(StandingFact("gpu", 5, 50), StandingFact("cpu", 2)))
    (line,) = engine_trouble(shut)
    assert line.startswith("pool gpu is protected: 5 machines in a row")
