"""`toolkit usage`, from command line to printed text, with the store in a folder."""

import csv
import gzip
import io
import json
import os
import subprocess
import sys

import pytest
from click.testing import CliRunner

from toolkit.commands.usage import command
from toolkit.usage import import_dump
from toolkit.usage.dump_text import DumpFormat, SacctText
from toolkit.usage.errors import DumpUnreadable, RateInvalid, StoreUnreadable

HEADER = (
    "DBIndex|JobIDRaw|JobID|Partition|Account|User|QOS|Submit|Start|End|State|NNodes|AllocTRES|"
    "NodeList|JobName"
)


def row(key="1", job="7", **changes):
    values = {
        "DBIndex": key,
        "JobIDRaw": job,
        "JobID": job,
        "Partition": "gpu",
        "Account": "vision",
        "User": "ada",
        "QOS": "normal",
        "Submit": "2026-11-01T00:00:00",
        "Start": "2026-11-01T01:00:00",
        "End": "2026-11-01T03:00:00",
        "State": "COMPLETED",
        "NNodes": "2",
        "AllocTRES": "billing=8,cpu=8,gres/gpu=2,mem=32000M,node=2",
        "NodeList": "gpu-[001-002]",
        "JobName": "digits",
    }
    return "|".join((values | changes).values())


@pytest.fixture
def usage(tmp_path):
    """Return a function that runs a command on one store."""

    def call(*words):
        name, *options = map(str, words)
        result = CliRunner().invoke(
            command, [name, *options, "--store", str(tmp_path / "store")], catch_exceptions=False
        )
        assert result.exit_code == 0, result.output
        return result.stdout

    return call


@pytest.fixture
def dump(tmp_path):
    """Return a function that writes a dump of rows."""

    def write(*rows, name="dump.txt", header=HEADER):
        path = tmp_path / name
        path.write_text("\n".join((header, *rows)) + "\n", encoding="utf-8")
        return path

    return write


def report(usage, *options):
    return json.loads(usage("report", "--json", *options))


def test_a_dump_is_imported_and_reported_by_account(usage, dump):
    path = dump(row(), row("2", "8", Account="speech", NNodes="1", AllocTRES="cpu=4,node=1"))
    assert "imported 2 attempts" in usage("import", path)
    text = usage("report", "--rate", "gpu=1.5")
    assert "vision   1         4.000       16.000     4.000      6.000000" in text
    assert "speech   1         2.000       8.000      0.000      3.000000" in text
    assert "total    2         6.000       24.000     4.000      9.000000" in text


def test_one_command_in_a_fresh_store_reports_a_dump_by_account(dump, tmp_path):
    path = dump(row(), row("2", "8", Account="speech", NNodes="1", AllocTRES="cpu=4,node=1"))
    done = subprocess.run(
        [sys.executable, "-c", "from toolkit.cli import main; main()", "usage", "import", path],
        env=os.environ | {"TOOLKIT_USAGE_STORE": str(tmp_path / "fresh")},
        cwd=tmp_path,
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    first, *others = done.stdout.splitlines()
    assert "imported 2 attempts" in first
    assert others[1] == "Usage from 2026-11-01T01:00:00Z to 2026-11-01T03:00:01Z"
    assert [line.split() for line in others if line.startswith(("vision", "speech", "total"))] == [
        ["vision", "1", "4.000", "16.000", "4.000"],
        ["speech", "1", "2.000", "8.000", "0.000"],
        ["total", "2", "6.000", "24.000", "4.000"],
    ]


def test_an_import_prints_the_report_that_is_asked_for(usage, dump):
    options = ("--by", "user,partition", "--rate", "gpu=1.5")
    data = json.loads(usage("import", dump(row(), row("2", "8", User="bob")), *options, "--json"))
    assert [item["attempts"] for item in data["imports"]] == [2]
    assert data["report"] == report(usage, *options)
    assert data["report"]["total"]["usd"] == "12.000000"
    text = usage("import", dump(row(), row("2", "8", User="bob")), *options)
    assert usage("report", *options) in text


def test_several_dumps_have_one_report(usage, dump):
    paths = dump(row(), name="a.txt"), dump(row("2", "8"), name="b.txt")
    text = usage("import", *paths)
    assert text.count("Usage from") == 1
    assert usage("report") in text


def test_a_rate_that_is_no_price_stops_an_import_before_it_begins(usage, dump, tmp_path):
    with pytest.raises(RateInvalid):
        usage("import", dump(row()), "--rate", "gpu=cheap")
    assert not (tmp_path / "store").exists()


def test_what_has_no_rate_is_unknown_and_never_zero(usage, dump):
    usage("import", dump(row(), row("2", "8", Partition="cpu")))
    found = report(usage, "--by", "partition", "--rate", "gpu=1.5")
    assert {item["partition"]: item["usd"] for item in found["rows"]} == {
        "gpu": "6.000000",
        "cpu": None,
    }
    assert found["total"]["usd"] == "6.000000"
    assert found["total"]["unknown_cost_attempts"] == 1
    lines = list(csv.DictReader(io.StringIO(usage("report", "--csv", "--by", "partition"))))
    assert {line["usd"] for line in lines} == {"unknown"}
    assert "6.000000+?" in usage("report", "--rate", "gpu=1.5")


def test_a_dump_without_tres_has_unknown_gpu_hours(usage, dump):
    header = "JobID|Submit|Start|End|NNodes|NCPUS"
    path = dump("7|2026-11-01T00:00:00|2026-11-01T01:00:00|2026-11-01T02:00:00|2|8", header=header)
    usage("import", path)
    (found,) = report(usage)["rows"]
    assert (found["node_hours"], found["cpu_hours"], found["gpu_hours"]) == ("2.000", "8.000", None)
    assert found["account"] is None
    assert "?" in usage("report")


def test_a_repeated_import_changes_nothing(usage, dump):
    path = dump(row(), row("2", "8"))
    usage("import", path)
    first = report(usage)
    assert "was imported before" in usage("import", path)
    usage("import", dump(row(), row("2", "8"), row("2", "8"), name="again.txt"))
    assert report(usage) == first


def test_an_attempt_that_ended_since_replaces_its_running_row(usage, dump):
    usage("import", dump(row(End="Unknown", State="RUNNING"), row("2", "8")))
    (before,) = report(usage)["rows"]
    assert before["running"] == 1
    usage("import", dump(row(End="2026-11-01T02:00:00"), name="later.txt"))
    (after,) = report(usage)["rows"]
    assert (after["attempts"], after["running"], after["node_hours"]) == (2, 0, "6.000")
    usage("import", dump(row(End="Unknown", State="RUNNING"), name="old.txt"))
    assert report(usage)["rows"] == [after]


def test_without_dbindex_job_submission_and_restarts_tell_attempts_apart(usage, dump):
    header = "JobID|Submit|Start|End|NNodes|Restarts"
    times = "2026-11-01T01:00:00|2026-11-01T02:00:00|1"
    first = f"7|2026-11-01T00:00:00|{times}|0"
    path = dump(
        first, first, f"7|2026-11-01T00:00:00|{times}|1", f"7|2026-11-01T00:30:00|{times}|0",
        header=header,
    )  # fmt: skip
    usage("import", path)
    assert report(usage)["total"]["attempts"] == 3


def test_one_dbindex_of_two_jobs_is_two_attempts(usage, dump):
    """A restored database counts on from its backup."""
    usage("import", dump(row(key="7", job="70")))
    usage("import", dump(row(key="7", job="10070"), name="later.txt"))
    usage("import", dump(row(key="7", job="10070", End="2026-11-01T05:00:00"), name="again.txt"))
    (found,) = report(usage)["rows"]
    assert (found["attempts"], found["node_hours"]) == (2, "12.000")


def test_large_keys_that_a_float_makes_equal_stay_apart(usage, dump):
    usage("import", dump(row(str(2**63 + 1)), row(str(2**63 + 2), "8")))
    assert report(usage)["total"]["attempts"] == 2


def test_an_attempt_counts_in_each_window_for_its_part(usage, dump):
    usage("import", dump(row()))
    early = report(usage, "--until", "2026-11-01T01:30")
    late = report(usage, "--since", "2026-11-01T01:30", "--until", "2026-11-02")
    assert early["total"]["node_hours"] == "1.000"
    assert late["total"]["node_hours"] == "3.000"
    assert report(usage, "--since", "2026-11-01T03:00", "--until", "2026-11-02")["rows"] == []


def test_epoch_seconds_and_a_time_zone_are_the_same_moment(usage, dump):
    times = {"Submit": "1793491200", "Start": "1793494800", "End": "1793502000"}
    usage("import", dump(row(**times)))
    utc = report(usage)
    local = {
        "Submit": "2026-11-01T01:00:00",
        "Start": "2026-11-01T02:00:00",
        "End": "2026-11-01T04:00:00",
    }
    usage("import", dump(row(**local), name="berlin.txt"), "--timezone", "Europe/Berlin")
    assert report(usage) == utc
    assert utc["since"] == "2026-11-01T01:00:00Z"


def test_a_compressed_dump_is_read_and_a_cut_one_is_refused(usage, tmp_path, dump):
    packed = gzip.compress(dump(row()).read_bytes())
    whole, cut = tmp_path / "whole.gz", tmp_path / "cut.gz"
    whole.write_bytes(packed)
    cut.write_bytes(packed[:-12])
    usage("import", whole)
    assert report(usage)["total"]["attempts"] == 1
    with pytest.raises(DumpUnreadable, match="can't read"):
        usage("import", cut)


def test_job_steps_are_left_out_and_bad_lines_are_kept_aside(usage, dump, tmp_path):
    path = dump(row(), row("2", "7.batch"), row("x", "9"), row("3", ""), "4|5", row("5", "10"))
    text = usage("import", path)
    assert "imported 2 attempts" in text
    assert "1 job steps left out" in text
    (record,) = json.loads(usage("status", "--json"))["imports"]
    assert (record["attempts"], record["steps"], record["bad_lines"]) == (2, 1, 3)
    kept = (tmp_path / "store" / "bad-lines" / "1.jsonl").read_text()
    assert [json.loads(line)["line"] for line in kept.splitlines()] == [4, 5, 6]


def test_a_dry_run_shows_the_same_and_keeps_nothing(usage, dump, tmp_path):
    assert "would import 1 attempts" in usage("import", "--dry-run", dump(row()))
    assert json.loads(usage("import", "--dry-run", "--json", dump(row())))["report"] is None
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize("attempts", [6, 7])
def test_an_import_that_was_killed_goes_on_behind_its_last_part(
    usage, dump, tmp_path, monkeypatch, attempts
):
    path = dump(*(row(str(key), str(key)) for key in range(1, attempts + 1)))
    options = import_dump.ImportOptions(rows_a_part=3)
    store = import_dump_store(tmp_path)
    commits = []

    def killed(manifest):
        if len(commits) == 1:
            raise KeyboardInterrupt
        commits.append(manifest)
        type(store).commit(store, manifest)

    monkeypatch.setattr(store, "commit", killed, raising=False)
    with pytest.raises(KeyboardInterrupt):
        import_dump.import_dump(store, path, options)
    assert report(usage)["total"]["attempts"] == 3
    assert "interrupted" in usage("status")
    monkeypatch.undo()
    result = import_dump.import_dump(store, path, options)
    assert (result.record.attempts, result.record.complete) == (attempts, True)
    assert report(usage)["total"]["attempts"] == attempts
    named = {file for day in store.manifest().days.values() for file in day.files}
    files = (store.folder / "attempts").rglob("*.parquet")
    assert {str(file.relative_to(store.folder)) for file in files} == named


def import_dump_store(tmp_path):
    from toolkit.usage.store import Store

    return Store(tmp_path / "store")


def test_shared_nodes_cost_their_dominant_share_where_the_size_is_known(usage, dump, tmp_path):
    prices = tmp_path / "prices.yaml"
    prices.write_text(
        "node_types:\n"
        "  big: {nodes: 'gpu-*', usd_per_hour: 4, cpus: 8, memory_mib: 64000, gpus: 4}\n"
        "partitions: {gpu: 9}\n"
    )
    # 2 nodes for 2 hours: 8 of 16 CPUs, 32000 of 128000 MiB, 2 of 8 GPUs. Half of 4 node-hours.
    usage("import", dump(row(), row("2", "8", NodeList="c1")))
    found = report(usage, "--by", "node-type", "--prices", prices)
    assert {item["node-type"]: item["usd"] for item in found["rows"]} == {
        "big": "8.000000",
        None: "36.000000",
    }
    dearer = report(usage, "--by", "node-type", "--prices", prices, "--rate", "big=8")
    assert dearer["rows"][1]["usd"] == "16.000000"


def test_half_a_micro_dollar_goes_to_the_even_one(usage, dump):
    end = "2026-11-01T01:00:01"
    short = row(End=end, NNodes="1", AllocTRES="cpu=1,node=1")
    usage("import", dump(short))
    # One second at 0.0018 an hour is 0.5 micro-dollars, at 0.0054 it is 1.5.
    assert report(usage, "--rate", "gpu=0.0018")["total"]["usd"] == "0.000000"
    assert report(usage, "--rate", "gpu=0.0054")["total"]["usd"] == "0.000002"


@pytest.mark.parametrize("rate", ["gpu", "=1", "gpu=", "gpu=0", "gpu=-1", "gpu=NaN", "gpu=1e40"])
def test_a_rate_that_is_no_price_is_refused(usage, dump, rate):
    usage("import", dump(row()))
    with pytest.raises(RateInvalid):
        usage("report", "--rate", rate)


def test_a_name_can_be_no_formula_in_csv_and_no_markup(usage, dump):
    usage("import", dump(row(Account="=1+1"), row("2", User="[/bold]")))
    assert "'=1+1" in usage("report", "--csv")
    assert "[/bold]" in usage("report", "--by", "user")


def test_a_damaged_manifest_is_named(usage, tmp_path):
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "manifest.json").write_text("{}")
    with pytest.raises(StoreUnreadable, match="manifest"):
        usage("report")


def test_an_empty_store_says_so(usage):
    assert "empty" in usage("status")
    assert usage("report") == "no attempts in this time\n"


def test_a_page_of_the_head_is_imported_by_its_lines_and_fields(usage, tmp_path):
    delimiter = "\x1f0f1e2d3c\x1f"
    form = DumpFormat(delimiter, tuple(HEADER.lower().split("|")))
    forged = "a\n" + row("9", "99").replace("|", "\x1f") + "\nb|c"
    content = "".join(
        row(key, key, JobName=forged).replace("|", delimiter, form.delimiters) + "\n"
        for key in ("1", "2")
    )
    page = SacctText("records/1", "digest", form, [content.encode()])
    result = import_dump.import_lines(
        import_dump_store(tmp_path), page, import_dump.ImportOptions()
    )
    assert (result.record.attempts, result.bad_lines) == (2, ())
    assert {item["job"] for item in report(usage, "--by", "job")["rows"]} == {"1", "2"}
