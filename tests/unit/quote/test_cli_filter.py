"""The line at submit by real Lua, the oldest and the newest that Slurm takes.

tests/slurm has the same by Slurm's own plugin.
"""

from __future__ import annotations

import json
import os
import subprocess
from decimal import Decimal
from pathlib import Path

import pytest

from slurmplugins.config import burst, submit_line
from slurmplugins.head import price_file
from slurmplugins.head.price_file import Remaining
from slurmplugins.head.submit_history import NO_HISTORY, SubmitHistory
from tests.unit.quote.samples import NOW, market, request
from tests.unit.render.render_samples import FACTS, GPU_POOL, PRICES, a_config
from toolkit.quote import offers
from toolkit.render import bundle_files
from toolkit.render.burst import burst_json

NOTHING = Remaining()
HERE = Path(__file__).parent
TEMPLATES = HERE.parents[2] / "templates"
DEFAULTS = {  # what the plugin gives for options that a user did not set, of 24.11.5
    "type": "sbatch",
    "nodes": "1-0",
    "ntasks": "1",
    "ntasks-per-node": "-2",
    "cpus-per-task": "0",
    "exclusive": "unset",
}
SPOT = {("g5.xlarge", "us-east-1a"): "0.40"}
CLASSES = {"release": {"partitions": ["any", "spot"]}, "sweep": {"priority": 10}}
LARGE = {
    "count": 2,
    "shape": {"cpus": 48, "memory_gib": 192, "gpus": 4, "gpu": "a10g"},
    "offerings": [{"type": "g5.xlarge", "capacity": "spot"}],
}


@pytest.fixture(params=["lua5.1", "lua5.4"])
def sbatch(request, tmp_path):
    """A function that runs the script and returns its line."""
    script, prices = tmp_path / "cli_filter.lua", tmp_path / "prices.json"
    config = a_config(classes=CLASSES)
    text = bundle_files(config, FACTS, PRICES, templates=TEMPLATES)["cli_filter.lua"]
    assert '"/shared/.toolkit/quote/prices.json"' in text
    script.write_text(text.replace("/shared/.toolkit/quote/prices.json", str(prices)))

    def line_of(content, *, now=NOW, environment=(), code="0", chosen=None, **options):
        if content is not None:
            prices.write_bytes(content)
        names = {name.replace("_", "-"): value for name, value in options.items()}
        given = [f"{name}={value}" for name, value in {**DEFAULTS, **names}.items()]
        done = subprocess.run(
            [request.param, str(HERE / "slurm_cli.lua"), str(script), str(now), *given],
            capture_output=True,
            text=True,
            env={"PATH": os.environ["PATH"], "USER": "ada", **dict(environment)},
            check=False,
        )
        assert done.returncode == 0
        changes = ["set:", f"partition={chosen}"] if chosen else []
        assert done.stdout.split() == [
            *("defaults:", "0", *changes, "submit:", code, "after:", "0"),
        ]
        told = done.stderr.splitlines()
        assert len(told) <= 2
        start = f"{options.get('type', 'sbatch')}: "
        assert all(line.startswith(start) and len(line) < 160 for line in told)
        return "\n".join(line.removeprefix(start) for line in told) or None

    return line_of


def content(remaining=NOTHING, history=NO_HISTORY, **changed):
    """Return the file that the head writes for a cluster."""
    document = json.loads(burst_json(a_config(**changed), FACTS, PRICES))
    part = submit_line.parse(document)
    config = burst.parse(document)
    return price_file.document(config, part, SPOT, remaining, NOW, history=history)


def test_the_line_says_what_the_job_costs_and_what_spot_costs_now(sbatch):
    assert sbatch(content(), time="08:00:00", gpus="1") == (
        "about 3.20 USD if it runs its 8 h; spot now 0.40 USD/h on g5.xlarge, on demand 1.01"
    )


HISTORY = SubmitHistory(
    waits={"spot": tuple((NOW, 300) for _ in range(40)), "any": ((NOW, 20),)},
    spot={"g5.xlarge": ((NOW // 86_400, 212 * 3600, 1),)},
)


def test_a_second_line_tells_of_wait_interruptions_and_budget(sbatch):
    told = sbatch(content(Remaining({"vision": 12.4}), HISTORY), time="08:00:00", gpus="1")
    first, second = told.splitlines()
    assert first.endswith("; spot now 0.40 USD/h on g5.xlarge, on demand 1.01")
    assert second.split("; ") == [
        "wait in spot 5 m (median of 40)",
        "1 interruption in 212 h of g5.xlarge",
        "vision has 12.40 USD left in its budget",
    ]


def test_a_short_wait_is_told_in_seconds_and_a_job_on_demand_has_no_interruptions(sbatch):
    told = sbatch(content(history=HISTORY), partition="any", time="01:00:00", cpus_per_task="16")
    assert told.splitlines()[1:] == ["wait in any 20 s (median of 1)"]


@pytest.mark.parametrize("damage", [b'"wait":7', b'"wait":{"seconds":"x","count":[]}'])
def test_a_damaged_history_leaves_the_price(sbatch, damage):
    whole = content(history=HISTORY)
    damaged = whole.replace(b'"wait":{"count":40,"seconds":300.0}', damage)
    assert damaged != whole
    told = sbatch(damaged, time="01:00:00", gpus="1")
    assert told.startswith("about 0.40 USD")
    assert "wait" not in told


def test_the_other_price_names_its_type_where_that_is_another(sbatch):
    offerings = [
        {"type": "g5.xlarge", "capacity": "spot"},
        {"type": "c7i.4xlarge", "capacity": "on-demand"},
    ]
    pools = {"gpu": {**GPU_POOL, "offerings": offerings}}
    partitions = {"spot": {"pools": ["gpu"], "default": True}}
    told = sbatch(content(pools=pools, partitions=partitions), time="01:00:00", gpus="1")
    assert told.endswith("; spot now 0.40 USD/h on g5.xlarge, on demand 0.71 on c7i.4xlarge")


def test_the_partitions_limit_holds_for_a_job_without_one(sbatch):
    assert sbatch(content(), gpus="1").startswith("about 9.60 USD if it runs its 24 h;")


def test_a_job_without_any_limit_is_told_its_price_an_hour(sbatch):
    line = sbatch(content(), partition="any", gpus="1")
    assert line.startswith("no time limit: 0.40 USD each hour;")
    assert sbatch(content(), time="UNLIMITED", gpus="1") == line


def test_an_array_costs_as_much_as_its_tasks(sbatch):
    line = sbatch(content(), time="1-00:00:00", gpus="1", array="0-7:2,9%2")
    assert line.startswith("about 48 USD if each of 5 tasks runs its 24 h;")


@pytest.mark.parametrize(
    ("options", "share"),
    [
        ({"gpus": "1"}, 0.25),
        ({"gpus": "a10g:2"}, 0.5),
        ({"gres": "gres/gpu:a10g:2"}, 0.5),
        ({"gres": "gres/shard:3,gres/gpu:2"}, 0.5),
        ({"gres": "gres/gpu"}, 0.25),
        ({"gpus_per_node": "2", "nodes": "2"}, 1),
        ({"gpus_per_task": "1", "ntasks": "3"}, 0.75),
        ({"gpus": "8"}, 2),
        ({"gpus": "1", "cpus_per_task": "24"}, 0.5),
        ({"gpus": "1", "exclusive": "exclusive"}, 1),
        ({"gpus": "1", "mem_per_gpu": "90G"}, 90 * 1024 / (192 * 1024 * 0.95)),
        ({"cpus_per_task": "12"}, 0.25),
        ({"ntasks": "6", "mem_per_cpu": "1000M"}, 0.125),
        ({"nodes": "2", "ntasks_per_node": "24"}, 1),
        ({"constraint": "a10g&gpu", "gpus": "1"}, 0.25),
    ],
    ids=str,
)
def test_the_line_says_the_same_as_a_quote(sbatch, options, share):
    """Price a job by both programs, which have no code in common."""
    partitions = {"spot": {"pools": ["gpu"], "default": True}}
    changed = {"pools": {"gpu": LARGE}, "partitions": partitions}
    line = sbatch(content(**changed), time="100:00:00", **options)
    told = Decimal(line.split()[1])
    assert told == pytest.approx(Decimal(40 * share), abs=Decimal("0.5"))
    place = market(changes=[("g5.xlarge", "us-east-1a", NOW - 9, Decimal("0.40"))], **changed)
    text = "#!/bin/bash\n#SBATCH --time=100:00:00\n"
    words = [
        f"--{name.replace('_', '-')}" + ("" if name == "exclusive" else f"={value}")
        for name, value in options.items()
    ]
    quoted = offers.offers(offers.resolved(request_of(text, words), place.config), place)[0]
    assert quoted.usd(360_000) == pytest.approx(Decimal(40 * share), abs=Decimal("0.05"))


def request_of(text, words):
    return request(*words, text=text)


def test_the_pool_is_the_one_that_fits(sbatch):
    line = sbatch(content(), partition="any", time="01:00:00", cpus_per_task="16")
    assert line == "about 0.71 USD if it runs its 1 h; on demand now 0.71 USD/h on c7i.4xlarge"


@pytest.mark.parametrize(
    "options",
    [
        {"partition": "none"},
        {"gpus": "64"},
        {"gpus": "h100:1"},
        {"constraint": "h100"},
        {"gpus": "a lot", "nodes": "999"},
    ],
    ids=str,
)
def test_a_job_that_slurm_will_refuse_gets_no_line(sbatch, options):
    assert sbatch(content(), time="01:00:00", **options) is None


def test_prices_of_some_hours_ago_say_so_and_those_of_yesterday_are_not_told(sbatch):
    options = {"time": "01:00:00", "gpus": "1"}
    fresh = sbatch(content(), now=NOW + 3600, **options)
    assert "ago" not in fresh
    old = sbatch(content(), now=NOW + 3 * 3600, **options)
    assert old == f"{fresh}, by prices of 3 h ago"
    assert sbatch(content(), now=NOW + 25 * 3600, **options) is None


@pytest.mark.parametrize(
    "damaged",
    [
        None,
        b"",
        b"{",
        b'{"version":1}',
        b'{"version":2,"at":1}',
        b"[1,2",
        b'{"a":"\\u0041"}',
        b"\xff\xfe\x00",
        b'{"version":1,"at":1790000000,"partitions":{"spot":7},"default":"spot"}',
        b'{"version":1,"at":"x","partitions":{},"default":"spot"}',
        b"[" * 100_000,
        b'{"version":1,"x":"' + b"y" * 300_000 + b'"}',
    ],
    ids=lambda value: repr(value)[:40],
)
def test_a_file_that_is_missing_or_damaged_stops_no_job(sbatch, damaged):
    assert sbatch(damaged, time="01:00:00", gpus="1") is None


def test_options_that_mean_nothing_stop_no_job(sbatch):
    odd = dict.fromkeys(("time", "nodes", "ntasks", "mem", "gres", "array", "account"), "%s%n\n")
    sbatch(content(), gpus="1", **odd)  # it asserts that the job goes on


def test_a_step_of_a_job_and_a_user_who_wants_no_line_get_none(sbatch):
    options = {"time": "01:00:00", "gpus": "1"}
    in_job = {"SLURM_JOB_ID": "7"}
    assert sbatch(content(), type="srun", environment=in_job.items(), **options) is None
    assert sbatch(content(), type="srun", **options)
    assert sbatch(content(), environment=in_job.items(), **options)  # a job that submits a job
    assert sbatch(content(), environment={"TOOLKIT_QUOTE": "off"}.items(), **options) is None
    assert sbatch(content(), quiet="1", **options) is None
    assert sbatch(content(), quiet="0", **options)


def test_a_job_that_may_cost_more_than_is_left_is_told_so_and_goes_on(sbatch):
    options = {"time": "08:00:00", "gpus": "1"}
    told = "\nvision has 2.50 USD left in its budget, less than this job may cost"
    left = content(Remaining({"vision": 2.5}))
    assert sbatch(left, account="vision", **options).endswith(told)
    assert sbatch(left, account="Vision", **options).endswith(told)  # slurmdbd has small letters
    assert sbatch(left, **options).endswith(told)  # ada's own account
    assert "\n" not in sbatch(left, account="other", **options)
    assert sbatch(content(Remaining({"vision": 50})), account="vision", **options).endswith(
        "\nvision has 50.00 USD left in its budget"
    )


def test_a_job_without_a_limit_is_told_what_is_left(sbatch):
    told = sbatch(content(Remaining({"vision": 2.5})), partition="any", gpus="1")
    assert told.endswith("\nvision has 2.50 USD left in its budget")


def test_where_usage_is_private_nothing_is_told_of_what_is_left(sbatch):
    slurm = {"version": "24.11", "private_data": ["usage"]}
    left = content(Remaining({"vision": 2.5}), slurm=slurm)
    assert "\n" not in sbatch(left, time="08:00:00", gpus="1")


WHY = "imagenet-2026: project imagenet may cost 5.00 USD until 2026-12-01 UTC, and no job is taken"
REFUSED = Remaining(
    accounts={"vision": 50},
    projects={"imagenet": 0},
    refused={"imagenet": WHY},
    account_projects={"language": "imagenet"},
)


@pytest.mark.parametrize(
    "options",
    [
        {"wckey": "ImageNet"},
        {"wckey": "imagenet", "quiet": "1"},
        {"wckey": "imagenet", "environment": {"TOOLKIT_QUOTE": "off"}.items()},
        {"account": "language"},
    ],
)
def test_a_job_of_a_project_whose_budget_refuses_is_refused(sbatch, options):
    assert sbatch(content(REFUSED), code="-1", **options) == f"refused by a budget: {WHY}"


@pytest.mark.parametrize(
    "options",
    [
        {"wckey": "coco"},
        {"account": "language", "wckey": "coco"},
        {"account": "vision"},
        {"wckey": "imagenet", "now": NOW + 3601},
        {"wckey": "imagenet", "type": "srun", "environment": {"SLURM_JOB_ID": "4"}.items()},
    ],
    ids=["other project", "own key", "other account", "old prices", "a step"],
)
def test_no_other_job_is_refused(sbatch, options):
    sbatch(content(REFUSED), **options)  # it asserts that the job goes on


def test_a_job_is_told_of_its_projects_budget_if_less_is_left_there(sbatch):
    options = {"time": "08:00:00", "gpus": "1", "wckey": "imagenet"}
    left = Remaining({"vision": 3}, {"imagenet": 1.5})
    told = "\nproject imagenet has 1.50 USD left in its budget, less than this job may cost"
    assert sbatch(content(left), **options).endswith(told)
    left = Remaining({"vision": 1}, {"imagenet": 1.5})
    assert "\nvision has 1.00 USD left in its budget" in sbatch(content(left), **options)


def test_a_job_of_a_grant_that_ended_is_told_so(sbatch):
    words = "erc: the grant of project imagenet ended on 2026-07-01 UTC, and pays no job"
    ended = Remaining(projects={"imagenet": 0}, ended_projects={"imagenet": words})
    options = {"time": "08:00:00", "gpus": "1"}
    assert sbatch(content(ended), wckey="imagenet", **options).endswith(f"\n{words}")
    assert "\n" not in sbatch(content(ended), wckey="coco", **options)


def test_without_budgets_nobodys_account_is_in_the_file():
    assert b"default_accounts" not in content()
    assert b"default_accounts" in content(Remaining({"vision": 1}))


@pytest.mark.parametrize("kind", ["sbatch", "salloc", "srun"])
@pytest.mark.parametrize("name", ["release", "Release"])
def test_a_job_of_a_class_gets_the_first_of_its_partitions(sbatch, kind, name):
    line = sbatch(content(), type=kind, qos=name, chosen="any", time="01:00:00", cpus_per_task="16")
    assert "on demand now" in line  # no such node is in the default partition


@pytest.mark.parametrize(
    "options",
    [
        {"qos": "release", "partition": "spot"},
        {"qos": "sweep"},
        {"qos": "normal"},
        {"qos": "release,sweep"},
        {"qos": "%s"},
        {},
        {"qos": "release", "type": "srun", "environment": {"SLURM_JOB_ID": "4"}.items()},
        {"qos": "release", "reservation": "maintenance"},
        {"qos": "release", "clusters": "other"},
    ],
    ids=str,
)
def test_no_other_job_gets_another_partition(sbatch, options):
    sbatch(content(), gpus="1", **options)  # it asserts that no option is changed


@pytest.mark.parametrize("damaged", [None, b"", b"{", b"[" * 100_000])
def test_a_class_needs_no_prices_to_choose_a_partition(sbatch, damaged):
    sbatch(damaged, qos="release", chosen="any")
    sbatch(damaged, qos="release", chosen="any", environment={"TOOLKIT_QUOTE": "off"}.items())


def test_a_reservation_is_told_as_one(sbatch):
    offering = {"type": "g5.xlarge", "capacity": "on-demand", "zone": "us-east-1a",
                "reservation": "cr-0123456789abcdef0"}  # fmt: skip
    pools = {"gpu": {**GPU_POOL, "offerings": [offering]}}
    partitions = {"spot": {"pools": ["gpu"], "default": True}}
    line = sbatch(content(pools=pools, partitions=partitions), time="01:00:00", gpus="1")
    assert line.endswith("; reserved now 1.01 USD/h on g5.xlarge")
