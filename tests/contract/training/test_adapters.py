"""Other libraries' trainers in a run that is interrupted.

No step is lost or repeated, and the weights have the same bits as undisturbed. The attempts are
those of `interrupt_ranks`; `test_torchrun_job` has those by torchrun.
"""

import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch

from toolkit.training.adapters.trainer_state import plain_data
from toolkit.training.attempt import verdict
from toolkit.training.checkpoint.checkpointer import Checkpointer
from toolkit.training.distributed.process_group import Solo
from toolkit.training.errors import Unsupported
from toolkit.training.recording.audit import audit
from toolkit.training.run_folder.steps import read

pytestmark = pytest.mark.timeout(900)

HERE = Path(__file__).resolve().parent
REPO = HERE.parents[2]
EPOCHS = {"huggingface": 25, "lightning": 40}  # each three steps, some of a millisecond
STOPS = 4
EXAMPLES = {
    "huggingface": ("--sequences", "96", "--batch", "16", "--length", "16", "--width", "32",
                    "--layers", "1"),
    "lightning": ("--batch", "240", "--hidden", "32"),
}  # fmt: skip
# An attempt's imports; accelerate uses DeepSpeed if it is installed.
MODULES = {
    "huggingface": "toolkit.training.adapters.huggingface,transformers.trainer,deepspeed,"
    "transformers.models.gpt2.modeling_gpt2",
    "lightning": "toolkit.training.adapters.lightning,sklearn.datasets",
}


def state(run_dir):
    newest = Checkpointer(run_dir / "checkpoints", Solo()).committed()[0]
    return torch.load(newest / "shared.pt", weights_only=True)


def same(a, b):
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[name], b[name]) for name in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    return torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b


@pytest.fixture(scope="module", params=EXAMPLES)
def disturbed(request, tmp_path_factory):
    """The folder with job 1, undisturbed, and job 2, disturbed.

    Job 2 is stopped and killed, and its checkpoint is damaged.
    """
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(
        dir=memory if memory.is_dir() else tmp_path_factory.mktemp("runs")
    ) as folder:
        script = REPO / "jobscripts" / request.param / "train.py"
        epochs = EPOCHS[request.param]
        arguments = ("--epochs", f"{epochs}", "--checkpoint-every", "5", *EXAMPLES[request.param])
        done = subprocess.run(
            [sys.executable, str(HERE / "interrupt_ranks.py"), folder, str(script),
             MODULES[request.param], *arguments],
            env=os.environ | {"PYTHONPATH": str(REPO), "OMP_NUM_THREADS": "1"},
            capture_output=True, text=True, check=False, timeout=800,
        )  # fmt: skip
        assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        yield Path(folder), done.stdout, epochs


def test_stopped_killed_and_spoilt_it_ends_with_the_same_bits(disturbed):
    root, said, _ = disturbed
    assert "checkpoint not loaded: step-" in said
    assert "content differs from what was written" in said
    whole, interrupted = state(root / "1"), state(root / "2")
    whole.pop("trainer", None)  # Hugging Face's log, which has times
    interrupted.pop("trainer", None)
    assert same(whole, interrupted)


def test_no_step_is_lost_or_taken_twice_and_the_verdicts_are_right(disturbed):
    root, _, epochs = disturbed
    found = audit(root / "2")
    assert (found.ok, found.steps, found.epochs_complete) == (True, 3 * epochs, epochs), (
        found.problems
    )
    causes = [attempt["cause"] for attempt in found.attempts]
    assert causes == ["spot-interruption"] * STOPS + ["lost", "finished"]
    last_stop = max(a["step_end"] for a in found.attempts if a["cause"] == "spot-interruption")
    assert min(found.repeated) >= last_stop  # none because of a notice
    words = [verdict.read(root / "2" / f"verdict.2.{restart}.json") for restart in range(STOPS + 2)]
    assert [word and word.exit_code for word in words] == [85] * STOPS + [None, 0]


def test_the_interrupted_run_was_told_the_same_of_every_step(disturbed):
    root, *_ = disturbed
    first, second = (read(root / job / "steps.jsonl").steps for job in "12")
    assert [(s.step, s.fingerprint, s.metrics) for s in first] == [
        (s.step, s.fingerprint, s.metrics) for s in second
    ]


def test_other_numbers_of_ranks_go_on_with_the_same_batches(disturbed):
    root, *_ = disturbed
    found = audit(root / "3")
    assert found.ok, found.problems
    begun = read(root / "1" / "steps.jsonl").steps
    gone_on = read(root / "3" / "steps.jsonl").steps
    assert len(gone_on) > 3
    assert [(s.start, s.stop, s.fingerprint) for s in gone_on] == [
        (s.start, s.stop, s.fingerprint) for s in begun[: len(gone_on)]
    ]


def test_a_state_that_is_not_only_data_is_named_before_it_is_saved():
    @dataclass
    class Odd:
        rate: float

    held = {"hyper_parameters": {"rate": np.float64(0.5), "sizes": (1, 2), "w": torch.ones(2)}}
    found = plain_data(held, "checkpoint")
    assert type(found["hyper_parameters"]["rate"]) is float
    assert found["hyper_parameters"]["sizes"] == (1, 2)
    with pytest.raises(Unsupported, match=r"checkpoint\.hyper_parameters\.odd .* Odd"):
        plain_data({"hyper_parameters": {"odd": Odd(0.1)}}, "checkpoint")
