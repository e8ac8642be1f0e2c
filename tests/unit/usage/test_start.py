"""The slow modules that a command loads before it does anything."""

import subprocess
import sys

import pytest

OFFLINE = ("toolkit.usage.store", "toolkit.usage.report", "toolkit.usage.instance_costs")
"""What reads a dump, and has no cluster.yaml."""
CLOSED = ("toolkit.commands.report_period", "toolkit.usage.closed_report")


@pytest.mark.parametrize(
    ("modules", "slow"), [(OFFLINE, {"boto3", "duckdb", "pydantic", "rich"}), (CLOSED, {"boto3"})]
)
def test_a_command_loads_nothing_slow_that_it_may_not_need(modules, slow):
    code = f"import sys, {', '.join(modules)}; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60
    )
    assert not slow.intersection(done.stdout.split())
