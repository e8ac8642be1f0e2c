"""The end of the cluster, after all other tests."""

from __future__ import annotations

import pytest

from tests.slurm.conftest import toolkit

pytestmark = [pytest.mark.machines, pytest.mark.timeout(2400, func_only=True)]


def test_destroy_and_local_down_leave_no_trace_on_the_host(cluster, traces):
    assert all(traces().values()), "there is nothing to look for"
    cluster.toolkit("destroy", "--yes")
    toolkit("local", "down")
    assert not any(traces().values()), traces()
