"""`toolkit usage cost`: a list of instances charged to a dump's jobs."""

import csv
import io
import json

import pytest
from click.testing import CliRunner

from tests.unit.usage.test_usage_commands import HEADER, row
from toolkit.commands.usage import command
from toolkit.usage import instance_list
from toolkit.usage.errors import InstancesUnreadable

COLUMNS = "instance,node,type,zone,lifecycle,launched,ended,usd_per_hour"
LISTED = (
    COLUMNS,
    "i-1,gpu-001,g5.xlarge,us-east-1a,spot,2026-11-01T00:30:00Z,2026-11-01T04:00:00+00:00,0.36",
    "i-2,gpu-002,g5.xlarge,us-east-1a,on-demand,1793493000,1793505600,0.72",
)


@pytest.fixture
def usage(tmp_path):
    def call(*words):
        name, *options = map(str, words)
        result = CliRunner().invoke(
            command, [name, *options, "--store", str(tmp_path / "store")], catch_exceptions=False
        )
        assert result.exit_code == 0, result.output
        return result.stdout

    dump = tmp_path / "dump.txt"
    dump.write_text(
        "\n".join(
            (
                HEADER,
                row(),
                row(
                    "2",
                    "8",
                    State="FAILED",
                    Account="speech",
                    Start="2026-11-01T03:10:00",
                    End="2026-11-01T03:20:00",
                    NNodes="1",
                    NodeList="gpu-001",
                    Submit="2026-11-01T00:00:00",
                    AllocTRES="cpu=4,mem=16000M,gres/gpu=1,node=1",
                ),
            )
        )
        + "\n"
    )
    call("import", dump)
    return call


@pytest.fixture
def listed(tmp_path):
    path = tmp_path / "instances.csv"
    path.write_text("\n".join(LISTED) + "\n")
    return path


def test_each_second_of_an_instance_is_charged(usage, listed):
    """Expect what was derived by hand.

    i-1 is 0.36 USD an hour, i-2 0.72: 0.0001 and 0.0002 a second.
    Both run from 00:30 to 04:00. Job 7 waits for 1,800 s and works for 7,200 s on both. Behind it
    i-1 idles for 600 s, then job 8 loses 600 s of work, and i-1 idles for 2,400 s. i-2 idles for
    3,600 s.
    """
    found = json.loads(usage("cost", listed, "--json"))
    vision, speech = found["rows"]
    assert vision["components"] == {
        "useful work": "2.160000", "boot": "0.540000", "idle gap": "0.060000",
        "idle tail": "0.720000",
    }  # fmt: skip
    assert speech["components"] == {"lost work": "0.060000", "idle tail": "0.240000"}
    assert (found["usd"], found["instances"]) == ("3.780000", 2)
    assert "vision" in usage("cost", listed)
    rows = list(csv.DictReader(io.StringIO(usage("cost", listed, "--csv", "--by", "user,job"))))
    assert sum(round(float(item["usd"]) * 1e6) for item in rows) == 3_780_000
    assert {item["job"] for item in rows} == {"7", "8"}


def test_a_job_that_was_held_waited_since_it_was_eligible(tmp_path, listed):
    """Release the job at 00:45.

    900 s of each instance are nobody's, and 900 s are boot.
    """
    header = HEADER.replace("Submit|", "Submit|Eligible|")
    submitted = "2026-11-01T00:00:00"
    held = row().replace(f"{submitted}|", f"{submitted}|2026-11-01T00:45:00|")
    dump = tmp_path / "held.txt"
    dump.write_text(f"{header}\n{held}\n")
    store = tmp_path / "held"
    for words in (["import", str(dump)], ["cost", str(listed), "--json"]):
        result = CliRunner().invoke(
            command, [*words, "--store", str(store)], catch_exceptions=False
        )
    vision, nobody = json.loads(result.stdout)["rows"]
    assert vision["components"]["boot"] == "0.270000"
    assert nobody["components"] == {"idle": "0.270000"}


def test_a_window_cuts_the_cost(usage, listed):
    found = json.loads(
        usage("cost", listed, "--json", "--since", "2026-11-01T01:00",
              "--until", "2026-11-01T02:00")
    )  # fmt: skip
    assert found["usd"] == "1.080000"


@pytest.mark.parametrize(
    ("lines", "fault"),
    [
        (("instance,node,type",), "launched"),
        ((COLUMNS, "i-1,gpu-001,g5.xlarge,us-east-1a,spot,yesterday,,"), "line 2.*no time"),
        ((COLUMNS, "i-1,gpu-001,g5.xlarge,us-east-1a,spot,1793493000,,NaN"), "line 2.*no price"),
        ((COLUMNS, "i-1,gpu-001,g5.xlarge,us-east-1a,burst,1793493000,,"), "lifecycle"),
        ((*LISTED, LISTED[1]), "line 4.*twice"),
        (
            (COLUMNS, "i-1,a,g5.xlarge,us-east-1a,spot,1,,", "i-2,a,g5.xlarge,eu-west-1a,spot,1,,"),
            "several regions",
        ),
    ],
)
def test_a_list_that_can_not_be_read_says_where(lines, fault):
    with pytest.raises(InstancesUnreadable, match=fault):
        instance_list.parse(f"{line}\n" for line in lines)


def test_an_instance_without_a_price_has_the_list_price_of_its_region(usage, tmp_path):
    path = tmp_path / "listed.csv"
    path.write_text(
        "instance,node,type,zone,launched,ended\n"
        "i-1,gpu-001,g5.xlarge,us-east-1a,1793493000,1793496600\n"
        "i-9,,x9.huge,us-east-1a,1793493000,1793496600\n"
    )
    found = json.loads(usage("cost", path, "--json"))
    assert found["usd"] == "1.006000"
    (nobody,) = [item for item in found["rows"] if item["has_unknown_cost"]]
    assert nobody["components"] == {"other machines": None}
    assert "1.006000+?" in usage("cost", path)
