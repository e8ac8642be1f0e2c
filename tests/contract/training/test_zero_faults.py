"""The fault matrix with DeepSpeed's own files.

A load gives the last good state, and never wrong numbers. ZeRO-2 has ZeRO-1's optimizer and files
(deepspeed.runtime.zero.stage_1_and_2), so its runs would show the same.
"""

import json

import pytest

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def met(tmp_path_factory, worker):
    root = tmp_path_factory.mktemp("zero")
    worker("zero_faults_worker.py", str(root), timeout=800, DS_ACCELERATOR="cpu")
    return json.loads((root / "met.json").read_text())


@pytest.mark.parametrize("kind", ["zero1", "zero3"])
def test_damage_to_any_file_gives_the_numbers_of_the_step_before(met, kind):
    """Check the number of damaged files.

    They are DeepSpeed's two, ours, the manifest and the commit, each flipped, cut and missing.
    """
    assert met[kind]["damaged"] >= 15


@pytest.mark.parametrize("kind", ["zero1", "zero3"])
def test_a_kill_at_any_file_operation_of_a_save_gives_a_step_with_its_own_numbers(met, kind):
    steps = met[kind]["kills"]
    assert (len(steps) > 10, set(steps), steps) == (True, {2, 3}, sorted(steps))


@pytest.mark.parametrize("kind", ["zero1", "zero3"])
def test_damage_is_found_also_where_the_files_are_rewritten_for_fewer_ranks(met, kind):
    steps = met[kind]["reshaped"]
    assert (len(steps) >= 6, set(steps)) == (True, {1})


@pytest.mark.parametrize("kind", ["zero1", "zero3"])
def test_an_attempt_that_lives_on_beside_its_successor_spoils_nothing_that_is_rewritten(met, kind):
    """Check the ends of the superseded attempts.

    The worker checks that nothing is left of a killed attempt's rewriting.
    """
    assert met[kind]["beside"] == ["superseded"] * 2
