"""The benchmark's printed report is the one in docs/benchmarks.md."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tests.bench import __main__ as bench, launching, report, simulated_aws, workload
from tests.bench.contest import Figures
from toolkit.local.aws import request_rates

DOCUMENT = Path(__file__).parents[3] / "docs" / "benchmarks.md"


def figures(wall: float, *, done: bool = True, wanted: int = 4000) -> Figures:
    return Figures(
        who="", wall=wall, cpu=2.0, peak_mb=80.0, ec2=17, launches=16, refused=3, other_aws=0,
        scontrol=33, instances=4000, done=done, wanted=wanted,
    )  # fmt: skip


def printed() -> str:
    """Return the part of the document that the benchmark has printed."""
    text = DOCUMENT.read_text(encoding="utf-8")
    return text.partition(report.BEGIN)[2].partition(report.END)[0]


def test_new_results_replace_the_old_ones_in_the_document():
    old = f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n"
    new = f"before\n{report.BEGIN}\n\nnew\n\n{report.END}\nafter\n"
    assert report.replaced(old, "\nnew\n") == new


def test_a_document_without_the_marks_is_refused():
    with pytest.raises(ValueError, match="printed by the benchmark"):
        report.replaced("text", "new")


def test_a_load_prints_medians_the_floor_and_each_ratio():
    own_results = {
        "toolkit": [figures(18.0), figures(16.5), figures(30.0)],
        "defaults": [figures(21.0)],
    }
    text = bench.launched(workload.Load(1, 4000), own_results, {"peer": [figures(36.0)]})
    assert "Floor: 15.0 s." in text
    assert "| toolkit (3 runs) | 18.0   | 1.20 " in text
    assert "| defaults (1 run) | 21.0   | 1.40 " in text
    assert "| toolkit        | 0.50 |" in text


def test_a_run_that_was_cut_off_has_no_ratio():
    cut = {"peer": [figures(300.0, done=False)]}
    text = bench.launched(workload.Load(1, 4000), {"toolkit": [figures(18.0)]}, cut)
    assert "> 300, cut off at 4000 instances" in text
    assert "| toolkit        | ?    |" in text


def test_a_peer_that_gave_up_has_no_ratio():
    """Print no ratio for a peer that gave up.

    It finished sooner because it launched fewer instances.
    """
    text = bench.launched(
        workload.Load(1, 4000), {"toolkit": [figures(18.0)]}, {"peer": [figures(9.0, wanted=4001)]}
    )
    assert "9.0, given up at 4000 instances" in text
    assert "| toolkit        | ?    |" in text


def test_the_published_rate_of_ec2_is_a_load_of_its_own():
    """Run the toolkit without the EC2 rate in its settings.

    As on any AWS account, the toolkit has to find out the rate.
    """
    load = bench.LOADS["140x8-published"]
    assert launching.floor(load) == 60
    own_contestants, peers = bench.contestants(load)
    assert [label for label, _ in own_contestants] == ["toolkit, defaults"]
    assert [label for label, _ in peers] == ["parallelcluster", "parallelcluster, DNS off"]
    assert (
        simulated_aws.rate(raised=load.raised)
        == (1000, 2)
        == request_rates.RESOURCES["RunInstances"]
    )


def test_fleets_have_no_floor_and_the_peer_uses_create_fleet():
    load = bench.LOADS["500x8-fleet"]
    assert launching.floor(load) == 0
    assert load.market.resource("subnet-a")["Api"] == "create-fleet"


def test_a_run_at_its_defaults_gets_no_settings(tmp_path: Path):
    workload.write_ours(tmp_path, workload.Load(1, 2), "subnet-a", tmp_path, told=False)
    text = (tmp_path / "burst.json").read_text()
    assert "instance_rate" not in text
    assert f'"resume_timeout": {workload.DEFAULT_TIMEOUT}' in text


def test_the_documents_tables_have_the_printed_columns():
    heads = [line for line in printed().splitlines() if "wall s" in line and line.startswith("|")]
    assert len(heads) == printed().count("### ")
    for head in heads:
        assert tuple(cell.strip() for cell in head.strip("|").split("|")) == report.COLUMNS
    assert " ".join(bench.TOLD.split()) in " ".join(printed().split())


def test_the_documents_tables_match_the_command_that_they_name():
    """Compare the tables with the loads and repeats of the named command.

    A peer that takes long runs once.
    """
    (arguments,) = re.findall(rf"Printed by `{bench.COMMAND} (.+)`\.", printed())
    options = bench.parsed(shlex.split(arguments))
    loads = [bench.LOADS[name] for name in options.names if name in bench.LOADS]
    assert re.findall("^### (.+)$", printed(), re.MULTILINE) == [str(load) for load in loads]
    assert {load for load in bench.LOADS.values() if load.raised} <= {*loads}
    counts = re.findall(r"^\| (\w+).* \((\d+) runs?\)", printed(), re.MULTILINE)
    assert {int(count) for who, count in counts if who == "toolkit"} == {options.repeat}
    assert {int(count) for _, count in counts} <= {1, options.repeat}
