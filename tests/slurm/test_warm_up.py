"""A dataset in every node's cache before the jobs that read it."""

from __future__ import annotations

import json
import re

import pytest

from tests.slurm.training_job import HOME, PYTHON, submit

pytestmark = [pytest.mark.machines, pytest.mark.timeout(2400, func_only=True)]
JOBSCRIPTS = "/shared/jobscripts"


def test_a_warm_up_fills_the_cache_of_every_node_once(cluster):
    cluster.write(f"{HOME}/words.txt", "a dataset")
    cluster.as_user("sh", "-c", 'mkdir -p "$1/words" && mv "$1/words.txt" "$1/words"', "sh", HOME)
    datasets = (*PYTHON, "-m", "toolkit.datasets")
    added = json.loads(cluster.as_user(*datasets, "add", f"{HOME}/words", "--name", "words"))
    warm = ("--partition=batch", "--nodes=2", f"{JOBSCRIPTS}/data-warmup.sbatch")
    first = submit(cluster, *warm, "words@1")
    assert first.ended() == {"COMPLETED"}, first.output()
    assert len(re.findall(r"words@1: filled", first.output())) == 2, first.output()
    again = submit(cluster, f"--nodelist={first.record()['nodes']}", *warm, added["version"])
    assert again.ended() == {"COMPLETED"}, again.output()
    assert len(re.findall(r"cached already", again.output())) == 2, again.output()
