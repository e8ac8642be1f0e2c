"""The benchmarks' figures: those of checkpoints, and those before a failure."""

import argparse
import json
import sys

import pytest

from tests.bench import __main__ as bench
from tests.bench.checkpoints import AGAINST, OVERHEADS


def test_the_figures_of_checkpoints_are_shown_and_handed_on():
    said = []
    found = bench.checkpoints(argparse.Namespace(), said.append, "64", "1")
    assert (found["mib"], found["rounds"]) == (64, 1)
    assert all(found[name]["wall"] > 0 and found[name]["ratio"] > 0 for name in AGAINST)
    table = said[-1].splitlines()
    assert all(
        any(line.startswith(f"{name} ") for line in table) for name in (*AGAINST, *OVERHEADS)
    )
    assert "64 MiB on one rank: medians of 1 rounds" in said[0]


def test_a_benchmark_that_fails_costs_no_figures_of_those_before_it(tmp_path, monkeypatch):
    def fails(*_):
        raise ValueError("no table")

    monkeypatch.setitem(bench.OTHERS, "hop", lambda *_: {"ours": [0.1]})
    monkeypatch.setitem(bench.OTHERS, "start", fails)
    kept = tmp_path / "figures.json"
    monkeypatch.setattr(sys, "argv", ["bench", "hop", "start", "--json", str(kept)])
    with pytest.raises(ValueError, match="no table"):
        bench.main()
    assert json.loads(kept.read_text()) == {"hop": {"ours": [0.1]}}
