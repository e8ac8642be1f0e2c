"""The scripts that `make` runs tiers with."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[3] / "scripts"


@pytest.fixture
def checkout(tmp_path):
    """A folder with the scripts, as a clone has them."""

    def make(name):
        place = tmp_path / name
        shutil.copytree(SCRIPTS, place / "scripts")
        (place / "Makefile").touch()
        return place

    return make


def run(place, *argv):
    return subprocess.run(
        [place / "scripts" / argv[0], *argv[1:]], capture_output=True, text=True, check=False
    )


def test_each_checkout_has_its_own_test_cloud_whatever_way_leads_to_it(checkout, tmp_path):
    one, two = checkout("one"), checkout("two")
    (tmp_path / "link").symlink_to(one)
    said = [run(place, "test-state").stdout for place in (one, two, tmp_path / "link")]
    assert said[0] == said[2] != said[1]
    assert said[0].startswith("/var/lib/toolkit-test-")


def test_a_tier_beside_others_prints_all_it_said_and_fails_as_it_did(checkout):
    words = ("sh", "-c", "echo first; echo second >&2; exit 3")
    done = run(checkout("one"), "buffered", "contract", *words)
    assert done.returncode == 3
    assert done.stdout.startswith("contract: begins; ")
    assert "contract: FAILED (3)" in done.stdout
    assert done.stdout.endswith("first\nsecond\n")


def test_a_tier_that_leaves_a_daemon_behind_keeps_no_other_from_printing(checkout):
    place = checkout("one")
    left = run(place, "buffered", "slurm", "sh", "-c", "sleep 30 >/dev/null 2>&1 & echo $!")
    daemon = left.stdout.split()[-1]
    assert "passed" in run(place, "buffered", "contract", "true").stdout
    subprocess.run(["kill", daemon], check=True)
