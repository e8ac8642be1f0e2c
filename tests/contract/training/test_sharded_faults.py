"""A sharded save in which one of two ranks is killed.

At each file operation of the save, the last good state stays whole.
"""

import json

import pytest

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def met(tmp_path_factory, worker):
    root = tmp_path_factory.mktemp("sharded")
    worker("sharded_faults_worker.py", str(root), timeout=800)
    return json.loads((root / "met.json").read_text())


@pytest.mark.parametrize(("rank", "fewest"), [(0, 8), (1, 2)])
def test_sigkill_of_either_rank_in_its_save_gives_a_step_with_its_own_numbers(met, rank, fewest):
    steps = met[rank]
    assert (len(steps) > fewest, set(steps), steps) == (True, {2, 3}, sorted(steps))
