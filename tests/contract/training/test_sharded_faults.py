"""One of two ranks is killed at a file operation of its save: the last good state, whole."""

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
    root = tmp_path_factory.mktemp("sharded")
    done = subprocess.run(
        [sys.executable, str(HERE / "sharded_faults_worker.py"), str(root)],
        env=os.environ | {"PYTHONPATH": str(HERE.parents[2]), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-6000:]}"
    return json.loads((root / "met.json").read_text())


@pytest.mark.parametrize(("rank", "fewest"), [(0, 8), (1, 2)])
def test_sigkill_of_either_rank_in_its_save_gives_a_step_with_its_own_numbers(met, rank, fewest):
    steps = met[rank]
    assert (len(steps) > fewest, set(steps), steps) == (True, {2, 3}, sorted(steps))
