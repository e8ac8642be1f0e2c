"""The scripts with which `make` runs tiers."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[3] / "scripts"


@pytest.fixture
def checkout(tmp_path):
    """A function that makes a folder with the scripts."""

    def make(name):
        root = tmp_path / name
        shutil.copytree(SCRIPTS, root / "scripts")
        (root / "Makefile").touch()
        return root

    return make


def run(root, *argv):
    return subprocess.run(
        [root / "scripts" / argv[0], *argv[1:]], capture_output=True, text=True, check=False
    )


def test_each_checkout_has_a_test_cloud_of_its_own(checkout, tmp_path):
    one, two = checkout("one"), checkout("two")
    (tmp_path / "link").symlink_to(one)
    states = [run(root, "test-state").stdout for root in (one, two, tmp_path / "link")]
    assert states[0] == states[2] != states[1]
    assert states[0].startswith("/var/lib/toolkit-test-")


def test_a_buffered_tier_prints_its_output_and_returns_its_exit_code(checkout):
    words = ("sh", "-c", "echo first; echo second >&2; exit 3")
    done = run(checkout("one"), "buffered", "contract", *words)
    assert done.returncode == 3
    assert done.stdout.startswith("contract: begins; ")
    assert "contract: FAILED (3)" in done.stdout
    assert done.stdout.endswith("first\nsecond\n")


def test_a_daemon_that_a_tier_leaves_behind_does_not_block_other_tiers(checkout):
    root = checkout("one")
    result = run(root, "buffered", "slurm", "sh", "-c", "sleep 30 >/dev/null 2>&1 & echo $!")
    daemon = result.stdout.split()[-1]
    assert "passed" in run(root, "buffered", "contract", "true").stdout
    subprocess.run(["kill", daemon], check=True)
