"""The line at submit by Slurm's own plugin, as a researcher sees it, and a quote beside it.

The jobs are held, so no instance is launched for them.
"""

from __future__ import annotations

import json
import re
import time
from datetime import UTC, datetime, timedelta

import pytest

from slurmplugins.config import paths
from tests.slurm.training_job import HOME

pytestmark = [pytest.mark.machines, pytest.mark.timeout(900, func_only=True)]
PRICES = str(paths.PRICES_FOR_SUBMIT)
SCRIPT = f"{HOME}/quoted.sbatch"
TEXT = "#!/bin/bash\n#SBATCH --job-name=quoted --account=vision --gpus=1\nsleep 3\n"


@pytest.fixture(scope="module", autouse=True)
def script(cluster):
    """A researcher's script, with prices of now."""
    cluster.renew_prices()
    yield cluster.write(SCRIPT, TEXT)
    cluster.run("sh", "-c", "scancel --name=quoted || true")


@pytest.fixture
def sbatch(cluster):
    """A function that submits a held job as ada.

    It returns the number and standard error.
    """

    def submit(*options):
        argv = ("runuser", "-u", "ada", "--", "sbatch", "--parsable", "--hold", "--chdir", HOME)
        done = cluster.head.output([*argv, *options, SCRIPT], timeout=120)
        return done.stdout.strip(), done.stderr

    return submit


def test_plain_sbatch_tells_a_researcher_what_the_job_would_cost(cluster, sbatch):
    number, told = sbatch("--time=08:00:00")
    assert number.isdigit()
    (line,) = [line for line in told.splitlines() if line.startswith("sbatch: about ")]
    assert re.fullmatch(
        r"sbatch: about [0-9.]+ USD if it runs its 8 h; spot now [0-9.]+ USD/h on g5\.xlarge"
        r", on demand [0-9.]+( on [a-z0-9.-]+)?",
        line,
    )


def test_a_class_is_all_that_a_researcher_types(cluster, sbatch):
    number, told = sbatch("--qos=thrifty", "--time=01:00:00")
    try:
        job = cluster.job(number)
        assert (job["qos"], job["partition"]) == ("thrifty", "cheap"), told
    finally:
        cluster.run("scancel", number)


def test_the_line_and_a_quote_name_the_same_price(cluster, sbatch, tmp_path):
    """Quote before and after the line: the market may move in between."""
    script = tmp_path / "quoted.sbatch"
    script.write_text(TEXT)

    def quoted():
        answer = cluster.toolkit("quote", "--json", "--time=08:00:00", str(script))
        return json.loads(answer.stdout)

    before = quoted()
    cluster.renew_prices()
    _, told = sbatch("--time=08:00:00")
    quote = quoted()
    first = quote["offers"][0]
    assert (first["lifecycle"], first["type"], first["share"]) == ("spot", "g5.xlarge", 1.0)
    amounts = [float(item["offers"][0]["usd_limit"]) for item in (before, quote)]
    assert any(f"about {amount:.2f} USD" in told for amount in amounts), (amounts, told)
    assert quote["share"]["account"] == "vision"
    assert quote["share"]["used_with_job"] >= quote["share"]["used"]


@pytest.mark.parametrize("damage", ["echo '{' >", "rm -f", "printf '[[[[' >"])
def test_damaged_prices_stop_no_job(cluster, sbatch, damage):
    with cluster.undisturbed("prices"):
        cluster.run("sh", "-c", f"{damage} {PRICES}")
        try:
            number, told = sbatch("--time=08:00:00")
        finally:
            cluster.renew_prices()
    assert number.isdigit()
    assert "USD" not in told


def test_a_deadline_by_toolkit_submit_is_the_jobs_own(cluster):
    by = datetime.now(UTC) + timedelta(hours=12)
    answer = cluster.toolkit(
        "submit", "--user", "ada", "--json", "--force", "--cheapest", "--by",
        by.isoformat(timespec="minutes"), "--hold", "--time=60", f"--chdir={HOME}", SCRIPT,
    )  # fmt: skip
    made = json.loads(answer.stdout)
    record = cluster.job(made["job"])
    assert record["deadline"]["number"] == made["start"]["deadline"]
    begin = made["start"]["begin"]
    if begin is not None:  # the local cloud's prices of the last days say so
        assert record["eligible_time"]["number"] == begin
        assert time.time() < begin < made["start"]["deadline"] - 3600
    assert float(made["start"]["usd"]) <= float(made["start"]["usd_now"])
