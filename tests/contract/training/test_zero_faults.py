"""The fault matrix with DeepSpeed's own files: the last good state, never wrong numbers."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(300)

HERE = Path(__file__).resolve().parent


@pytest.fixture(scope="module")
def met(tmp_path_factory):
    root = tmp_path_factory.mktemp("zero")
    done = subprocess.run(
        [sys.executable, str(HERE / "zero_faults_worker.py"), str(root)],
        env=os.environ
        | {"PYTHONPATH": str(HERE.parents[2]), "OMP_NUM_THREADS": "1", "DS_ACCELERATOR": "cpu"},
        capture_output=True,
        text=True,
        check=False,
        timeout=250,
    )
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-6000:]}"
    return json.loads((root / "met.json").read_text())


@pytest.mark.parametrize("kind", ["zero1", "zero2", "zero3"])
def test_damage_to_any_file_gives_the_numbers_of_the_step_before(met, kind):
    """Of DeepSpeed's two, ours, the manifest and the commit; each flipped, cut and missing."""
    assert met[kind]["damaged"] >= 15


@pytest.mark.parametrize("kind", ["zero1", "zero2", "zero3"])
def test_a_kill_at_any_file_operation_of_a_save_gives_a_step_with_its_own_numbers(met, kind):
    steps = met[kind]["kills"]
    assert (len(steps) > 10, set(steps), steps) == (True, {2, 3}, sorted(steps))


@pytest.mark.parametrize("kind", ["zero1", "zero2", "zero3"])
def test_damage_is_found_also_where_the_files_are_rewritten_for_fewer_ranks(met, kind):
    steps = met[kind]["reshaped"]
    assert (len(steps) >= 6, set(steps)) == (True, {1})
