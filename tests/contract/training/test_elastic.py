"""A run on more and on fewer ranks, with each sharding."""

import pytest
import torch

from toolkit.training.recording.audit import audit
from toolkit.training.run_folder.attempts import AttemptsFile

pytestmark = pytest.mark.timeout(1800)
KINDS = ("ddp", "fsdp2", "fsdp2-background", "fsdp2-local", "zero1", "zero3")


@pytest.fixture(scope="module")
def root(tmp_path_factory, worker):
    """The folder with each kind of run, on three numbers of ranks."""
    root = tmp_path_factory.mktemp("elastic")
    worker("elastic_worker.py", str(root), *KINDS, timeout=1700, DS_ACCELERATOR="cpu")
    return root


def weights(folder):
    return torch.load(folder / "weights.pt", weights_only=True)


def drawn(folder):
    """Return each rank's random numbers of the last attempt, by step."""
    return torch.load(folder / "drawn.pt", weights_only=True)


@pytest.mark.parametrize("kind", KINDS)
def test_from_two_ranks_to_one_to_three_every_sample_is_taken_once_an_epoch(root, kind):
    found = audit(root / kind)
    assert (found.ok, found.steps, found.repeated) == (True, 16, ()), found.problems
    assert (found.samples, found.epochs_complete, len(found.resumed_at)) == (160, 4, 2)


@pytest.mark.parametrize("kind", KINDS)
def test_killed_on_two_ranks_it_goes_on_from_its_last_save_on_one_and_on_three(root, kind):
    found = audit(root / f"{kind}.killed")
    assert (found.ok, found.steps, found.samples) == (True, 16, 160), found.problems
    began = AttemptsFile(root / f"{kind}.killed" / "attempts.jsonl").attempts()
    assert [(attempt.world_size, attempt.step_start) for attempt in began[:2]] == [(2, 0), (1, 4)]
    assert (len(began), began[2].world_size) == (3, 3)
    assert (found.resumed_at[0], set(found.repeated) <= {4, 5}) == (4, True), found


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("end", ["", ".killed"])
def test_from_two_ranks_to_one_to_three_the_weights_are_those_of_a_run_undisturbed(root, kind, end):
    """Compare the weights with a tolerance, because the order of summing differs."""
    whole, elastic = weights(root / f"{kind}.whole"), weights(root / f"{kind}{end}")
    assert whole.keys() == elastic.keys()
    for name, value in whole.items():
        torch.testing.assert_close(elastic[name], value, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_stopped_and_resumed_on_the_same_ranks_the_weights_are_the_same_bits(root, kind):
    whole, same = weights(root / f"{kind}.whole"), weights(root / f"{kind}.same")
    assert all(torch.equal(same[name], value) for name, value in whole.items())


@pytest.mark.parametrize("kind", KINDS)
def test_stopped_and_resumed_on_the_same_ranks_every_rank_draws_the_numbers_it_would_have(
    root, kind
):
    """Compare the numbers of Python's, numpy's and torch's generators.

    Each rank has seeded its own generators.
    """
    whole, same = drawn(root / f"{kind}.whole"), drawn(root / f"{kind}.same")
    assert [sorted(steps) for steps in same] == [list(range(min(same[0]), 16))] * 2
    assert min(same[0]) > 4, "it was not resumed"
    assert whole[0] != whole[1]
    assert same == [{step: steps[step] for step in same[0]} for steps in whole]


def test_the_files_are_an_ordinary_dcp_checkpoint(root):
    from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

    newest = max((root / "fsdp2" / "checkpoints").iterdir())
    dcp_to_torch_save(newest, root / "plain.pt")
    plain = torch.load(root / "plain.pt", weights_only=True)
    assert all(torch.equal(plain["model"][k], v) for k, v in weights(root / "fsdp2").items())
