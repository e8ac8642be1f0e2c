"""`toolkit submit --by --cheapest`: the options that sbatch gets, and what people are told."""

from __future__ import annotations

import json
import shutil
import time
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace

import click
import pytest

from toolkit.cli import run
from toolkit.commands import submit_start
from toolkit.prices import SpotHistory
from toolkit.quote import facts, planned_starts

EXAMPLE = Path(__file__).parents[3] / "examples/local.yaml"
DAY = 86_400
HOUR = 3600
NOW = 1_789_948_800 + 18 * HOUR  # 2026-09-21 18:00 UTC
DEAR, CHEAP = Decimal("1.00"), Decimal("0.40")
PROGRAM = """#!/bin/bash
case "$(basename "$0") $*" in
  "sinfo "*) echo spot ;;
  "sacctmgr "*) echo vision ;;
  "sbatch --test-only "*) ;;
  "sbatch "*) echo 4711 ;;
esac
"""


def history(*, cheap_nights):
    """Return prices that fall at 02:00 UTC for four hours, or never."""
    midnight = NOW - 18 * HOUR
    points = [
        (kind, zone, midnight - 40 * DAY, DEAR)
        for kind in ("g5.xlarge",)
        for zone in ("us-east-1a", "us-east-1b")
    ]
    for day in range(30 if cheap_nights else 0):
        for zone in ("us-east-1a", "us-east-1b"):
            points.append(("g5.xlarge", zone, midnight - day * DAY + 2 * HOUR, CHEAP))
            points.append(("g5.xlarge", zone, midnight - day * DAY + 6 * HOUR, DEAR))
    return SpotHistory.from_points(points)


@pytest.fixture
def submit(tmp_path, monkeypatch, as_head, capsys):
    """A function that submits a script to stand-ins of Slurm's programs."""
    as_head(None)
    for name in ("sbatch", "sinfo", "sacctmgr"):
        program = tmp_path / name
        program.write_text(PROGRAM)
        program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("TOOLKIT_PREDICTIONS", str(tmp_path / "record"))
    monkeypatch.chdir(tmp_path)
    # That module's clock alone: another one that is first imported now would keep this time.
    monkeypatch.setattr(submit_start, "time", SimpleNamespace(time=lambda: float(NOW)))
    shutil.copy(EXAMPLE, "cluster.yaml")
    script = "#!/bin/bash\n#SBATCH --requeue --open-mode=append\nsleep 1\n"
    Path("job.sbatch").write_text(script)

    def submit_with(*words, cheap_nights=True):
        monkeypatch.setattr(facts, "spot_prices", lambda *_: history(cheap_nights=cheap_nights))
        code = run(["submit", *words, "job.sbatch"])
        return code, capsys.readouterr()

    return submit_with


BY = "2026-09-22T08:00+00:00"
UNTIL = NOW + 14 * HOUR


def test_a_job_begins_when_spot_was_cheap_on_past_days(submit):
    code, output = submit("--by", BY, "--cheapest", "--json", "--time=04:00:00")
    answer = json.loads(output.out)
    assert code == 0
    begin = NOW + 8 * HOUR
    assert f"--begin=uts{begin}" in answer["argv"]
    assert f"--deadline=uts{UNTIL}" in answer["argv"]
    assert answer["start"]["begin"] == begin
    assert (answer["start"]["usd_now"], answer["start"]["usd"]) == ("1.0000", "0.4000")
    assert answer["start"]["backtest"]["days"] == 14


def recorded(tmp_path):
    return planned_starts.read(tmp_path / "record/demo.jsonl")


def test_a_later_start_is_recorded_with_the_price_at_submission(submit, tmp_path):
    words = ("--by", BY, "--cheapest", "--time=04:00:00")
    submit(*words, "--dry-run")
    submit(*words, cheap_nights=False)
    assert recorded(tmp_path) == ()
    submit(*words)
    start = planned_starts.PlannedStart("4711", NOW, NOW + 8 * HOUR, UNTIL, "g5.xlarge", DEAR)
    assert recorded(tmp_path) == (start,)


def test_a_record_that_can_not_be_written_costs_no_job(submit, tmp_path):
    (tmp_path / "record").write_text("a file where the folder should be")
    code, output = submit("--by", BY, "--cheapest", "--time=04:00:00")
    assert (code, "job 4711" in output.out) == (0, True)
    assert "not in the savings ledger: can't record it" in output.err


def test_a_damaged_line_of_the_record_is_no_start(submit, tmp_path):
    submit("--by", BY, "--cheapest", "--time=04:00:00")
    path = tmp_path / "record/demo.jsonl"
    line = json.loads(path.read_text())
    damaged = [line | {"usd_per_hour": "-1"}, line | {"begin": "soon"}, {"at": 1}, []]
    path.write_text("\n".join(["nothing", *map(json.dumps, [*damaged, line, line])]))
    assert len(recorded(tmp_path)) == 1


def test_people_are_told_what_it_saves_and_what_that_was_worth(submit):
    _, output = submit("--by", BY, "--cheapest", "--dry-run", "--time=04:00:00")
    assert "about 0.40 USD on g5.xlarge in us-east-1a, in place of 1.00 now" in output.out
    assert "the same choice on 14 past days would have saved 60.0%" in output.out
    assert "added --begin=uts" in output.out


def test_a_market_without_cheap_hours_begins_at_once(submit):
    _, output = submit("--by", BY, "--cheapest", "--dry-run", "--time=04:00:00", cheap_nights=False)
    assert "--begin" not in output.out
    assert "begins at once" in output.out
    assert f"--deadline=uts{UNTIL}" in output.out


def test_a_partition_without_spot_begins_at_once_and_says_why(submit):
    text = Path("cluster.yaml").read_text()
    spot = "      - {type: g5.xlarge, capacity: spot}\n"
    assert text.count(spot) == 1
    Path("cluster.yaml").write_text(text.replace(spot, ""))
    code, output = submit("--by", BY, "--cheapest", "--dry-run", "--time=04:00:00")
    assert code == 0
    assert "the partition buys no spot: every start costs the same" in output.out
    assert "--begin" not in output.out
    code, output = submit("--by", BY, "--cheapest", "--dry-run", "--time=13:59:00")
    assert (code, "can't end by then" in output.err) == (2, True)


def test_a_deadline_alone_asks_for_no_price(submit):
    code, output = submit("--by", BY, "--dry-run", "--json", "--time=04:00:00")
    assert code == 0
    assert json.loads(output.out)["start"]["usd"] is None


def staged(tmp_path, gigabytes=450):
    """Return the words for a copy that takes an hour."""
    (tmp_path / "data").mkdir()
    with (tmp_path / "data/shard").open("wb") as file:
        file.truncate(gigabytes * 10**9)
    return "--stage-in", f"imagenet={tmp_path / 'data'}", "--racks", "spot"


def test_the_start_leaves_time_for_the_copies_before_the_job(submit, tmp_path):
    copies = staged(tmp_path)
    words = ("--by", BY, "--cheapest", "--dry-run", *copies, "--json", "--time=04:00:00")
    _, output = submit(*words, cheap_nights=False)
    answer = json.loads(output.out)["start"]
    assert (answer["copy_seconds"], answer["begin"]) == (3600, None)
    _, output = submit(*words)
    assert json.loads(output.out)["start"]["begin"] == NOW + 8 * HOUR
    _, output = submit("--by", BY, "--cheapest", "--dry-run", *copies, "--time=04:00:00")
    assert "its data is copied first: about 60.0 min" in output.out


@pytest.mark.parametrize("choice", [("--cheapest",), ()])
def test_a_job_whose_copies_leave_too_little_time_is_refused(submit, tmp_path, choice):
    words = ("--by", BY, *choice, "--dry-run")
    code, output = submit(*words, *staged(tmp_path), "--time=13:30:00")
    assert code == 2
    assert "its data is copied for 1.0 h, and 14.0 h are left" in output.err
    copies = ("--stage-in", "imagenet=/racks/only", "--racks", "spot")
    assert submit(*words, *copies, "--stage-time", "5m", "--time=13:30:00")[0] == 0


def test_a_folder_that_can_not_be_read_here_needs_a_time(submit):
    copies = ("--stage-in", "imagenet=/racks/only", "--racks", "spot")
    code, output = submit("--by", BY, *copies, "--time=04:00:00")
    assert code == 2
    assert "/racks/only can't be read from here: say by --stage-time" in output.err
    code, output = submit("--by", BY, *copies, "--stage-time", "soon", "--time=04:00:00")
    assert "expected a time such as 90m" in output.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--cheapest",), "--cheapest needs --by"),
        (("--by", "soon"), "no time"),
        (("--by", "2026-09-21T17:00+00:00"), "is over"),
        (("--by", BY, "--begin=now+1hour"), "has a start already"),
        (("--by", BY, "--cheapest", "--time=13:59:00"), "can't end by then"),
    ],
    ids=str,
)
def test_what_can_not_be_is_refused(submit, words, message):
    code, output = submit(*words)
    assert code == 2
    assert message in output.err


@pytest.fixture
def in_berlin(monkeypatch):
    """Set this computer's zone, where clocks change on 25 October 2026."""
    monkeypatch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("in_berlin")
def test_a_time_of_day_is_the_next_one_in_the_zone_of_this_computer():
    evening = datetime(2026, 9, 21, 20, 0).astimezone()
    tomorrow = datetime(2026, 9, 22, 8, 0).astimezone()
    assert submit_start.deadline_of("08:00", evening) == tomorrow.timestamp()
    assert submit_start.deadline_of("21:30", evening) == evening.timestamp() + 5400
    assert submit_start.deadline_of("2026-09-22T08:00", evening) == tomorrow.timestamp()
    for text in ("8", "25:00", "20:61"):
        with pytest.raises(click.BadParameter):
            submit_start.deadline_of(text, evening)


@pytest.mark.usefixtures("in_berlin")
@pytest.mark.parametrize("text", ["08:00", "2026-10-25T08:00", "2026-10-25T07:00+00:00"])
def test_a_time_is_that_of_the_clock_after_a_change_of_the_clock(text):
    evening = datetime(2026, 10, 24, 18, 0, tzinfo=UTC)
    morning = datetime(2026, 10, 25, 7, 0, tzinfo=UTC)
    assert submit_start.deadline_of(text, evening) == morning.timestamp()
