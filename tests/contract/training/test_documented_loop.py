"""The training loop without `Run` of docs/training.md, run as printed there."""

from __future__ import annotations

import os
import re
import time
from contextlib import suppress
from pathlib import Path

import pytest
import torch

from toolkit.training import Stopped
from toolkit.training.attempt import verdict
from toolkit.training.attempt.attempt import current
from toolkit.training.io.durable_files import write_json

PAGE = Path(__file__).resolve().parents[3] / "docs" / "training.md"
STEPS = 250


@pytest.fixture
def loop(tmp_path, monkeypatch):
    """A function that runs one attempt of the loop.

    It returns the trained steps and the verdict.
    """
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    (text,) = [block for block in blocks if "StopFiles" in block]
    for name in os.environ:
        if name.startswith(("SLURM_", "TOOLKIT_")) or name in {"RANK", "WORLD_SIZE"}:
            monkeypatch.delenv(name)
    monkeypatch.setenv("TOOLKIT_RUN_DIR", str(tmp_path / "run"))
    monkeypatch.setenv("TOOLKIT_STOP_DIR", str(tmp_path / "stop"))
    monkeypatch.setenv("SLURM_JOB_ID", "12")
    for name in ("run", "stop"):
        (tmp_path / name).mkdir()

    def run(restart, requested=None, at_step=0):
        monkeypatch.setenv("SLURM_RESTART_COUNT", str(restart))
        monkeypatch.setenv("TOOLKIT_ATTEMPT_STARTED", str(time.time()))
        attempt, trained = current(), []

        def train(step):
            trained.append(step)
            if requested and step == at_step:
                write_json(attempt.stop_files[0], {"cause": "spot-interruption", "at": requested})
                time.sleep(0.25)  # longer than the least time between two looks for a stop request

        given = {"steps": STEPS, "train": train, "parts": {"model": torch.nn.Linear(2, 2)}}
        with suppress(Stopped):
            exec(compile(text, str(PAGE), "exec"), given)  # noqa: S102 - our own page
        return trained, verdict.read(attempt.verdict_file)

    return run


def test_the_documented_loop_stops_on_request_and_goes_on_where_it_stopped(loop):
    trained, word = loop(0, time.time(), at_step=130)
    assert (trained[-1], word.verdict, word.cause) == (130, "resume", "spot-interruption")
    again, word = loop(1)
    assert (trained + again, word.verdict) == (list(range(STEPS)), "done")


def test_a_request_of_a_cluster_that_was_here_before_does_not_stop_it(loop):
    trained, word = loop(0, time.time() - 86_400, at_step=30)
    assert (trained, word.verdict) == (list(range(STEPS)), "done")
