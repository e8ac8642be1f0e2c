"""`toolkit burst status` and `simulate`, as people and scripts see them."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from slurmplugins.governor.plan import plan
from slurmplugins.governor.run import printable
from slurmplugins.head import read_commands
from slurmplugins.slurm import sacct
from tests.fakes.governor import a_job, snapshot
from toolkit import cli
from toolkit.burst import facts, history

EXAMPLE = Path(__file__).parents[3] / "examples" / "local.yaml"


class FakeHead:
    """A head node with two waiting jobs, and a month of past ones."""

    def __init__(self, rows: int = 6) -> None:
        self.commands: list[list[str]] = []
        self._rows = rows

    def run(self, argv, *, timeout=60):
        del timeout
        self.commands.append(list(argv))
        if "--plan" in argv:
            given = snapshot(a_job(), a_job(8, account="evil\x1b[31m"))
            return json.dumps(printable(plan(given), given))
        (word,) = (w for w in argv if w.startswith("--delimiter="))
        delimiter = word.removeprefix("--delimiter=")
        return "".join(delimiter.join(self._row(n)) + "\n" for n in range(self._rows))

    def _row(self, number: int) -> list[str]:
        begin = int(time.time()) - 86_400
        start = begin + 3600 * number
        tres = "cpu=16,mem=64000M,node=2"
        times = (begin, begin, start, start + 3600)
        return [
            *(str(number), str(number), "vision", "normal", "rack"),
            *map(str, times),
            *("120", "2", tres, tres, "", "", "COMPLETED"),
        ]


@pytest.fixture
def head(as_head, monkeypatch):
    monkeypatch.setenv("TOOLKIT_CONFIG", str(EXAMPLE))
    return as_head(FakeHead())


def test_status_lists_jobs_with_their_decisions_and_budgets(head, capsys):
    assert cli.run(["burst", "status"]) == 0
    out = capsys.readouterr().out
    assert "may burst: it has waited 1 h 0 m for racks; cloud costs at most 1.50 USD" in out
    assert "has no burst budget" in out
    assert "\x1b" not in out
    assert "vision   rack   100.00       0.00   1.50       98.50" in out


def test_status_is_json_for_scripts(head, capsys):
    assert cli.run(["burst", "status", "--json"]) == 0
    value = json.loads(capsys.readouterr().out)
    assert [(item["job"], item["reason"]) for item in value["decisions"]] == [
        (7, "age"), (8, "no-budget")
    ]  # fmt: skip
    assert value["accounts"][0]["usd_committed"] == "1.50"


def test_simulate_shows_each_threshold_and_writes_the_picture(head, capsys, tmp_path):
    plot = tmp_path / "burst.svg"
    assert cli.run(["burst", "simulate", "--after", "10m,4h", "--plot", str(plot)]) == 0
    out = capsys.readouterr().out
    assert [line.split()[0] for line in out.splitlines()[1:6]] == [
        "AFTER", "never", "4", "30", "10"
    ]  # fmt: skip
    assert "model against 6 real jobs" in out
    assert plot.read_text().startswith("<svg")


def test_simulate_is_json_for_scripts(head, capsys):
    assert cli.run(["burst", "simulate", "--json"]) == 0
    (simulation,) = json.loads(capsys.readouterr().out)["simulations"]
    assert [item["after"] for item in simulation["outcomes"]] == [None, 7200.0, 1800.0, 600.0]
    assert simulation["outcomes"][0]["bursts"] == 0


def test_a_threshold_that_is_no_wait_is_refused(head, capsys):
    assert cli.run(["burst", "simulate", "--after", "soon"]) == 2
    assert "10m,30m,2h" in capsys.readouterr().err


def test_both_commands_are_a_readers():
    assert read_commands.is_read([*facts.AS_SLURM, *facts.PLAN])
    assert read_commands.is_read(sacct.argv(history.FIELDS, 0, 1, sacct.new_token()))
