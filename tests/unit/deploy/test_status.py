"""The verdict: a pure function of the facts."""

from dataclasses import replace

import pytest

from toolkit.deploy.status import Down, Status

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
