"""A cluster, its prices, and records of past jobs, for the tests of quotes."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

from tests.unit.render.render_samples import a_config
from toolkit.accounting.attempts import Attempt
from toolkit.accounting.instances import Instance
from toolkit.accounting.tres import Tres
from toolkit.prices import PriceBook, SpotHistory
from toolkit.quote import offers
from toolkit.quote.request import read_request

NOW = 1_790_000_000
DAY = 86_400
CHANGES = (
    ("g5.xlarge", "us-east-1a", NOW - 3600, Decimal("0.40")),
    ("g5.xlarge", "us-east-1b", NOW - 3600, Decimal("0.50")),
)
SCRIPT = """#!/bin/bash
#SBATCH --job-name=llm --account=vision
#SBATCH --time=08:00:00
#SBATCH --gpus=1
python train.py
"""


def market(changes=CHANGES, **changed):
    """Return a market with spot prices of two zones; `changed` replaces sections."""
    book = replace(PriceBook.bundled("us-east-1"), history=SpotHistory.from_points(changes))
    return offers.Market(a_config(**changed), book, NOW)


def request(*options, text=SCRIPT, **environment):
    """Return what a script requests, as `toolkit quote` reads it."""
    return read_request(text, "job.sbatch", options, environment)


def attempt(key=1, **changes):
    """Return a completed hour of the job `llm`, a day ago."""
    start = NOW - DAY
    return replace(
        Attempt(
            key=key,
            job_id=str(key),
            job=str(key),
            name="llm",
            user="ada",
            account="vision",
            partition="spot",
            state="COMPLETED",
            exit_codes=(0, 0),
            restarts=0,
            submitted=start - 300,
            started=start,
            ended=start + 3600,
            nodes=("gpu-001",),
            tres=Tres(4, 15_000, 1),
        ),
        **changes,
    )


def instance(**changes):
    """Return a spot instance of two hours, a day ago."""
    start = NOW - DAY
    return replace(
        Instance(
            instance_id="i-1",
            node="gpu-001",
            pool="gpu",
            instance_type="g5.xlarge",
            zone="us-east-1a",
            spot=True,
            launched=start - 120,
            ended=start + 7080,
            end_cause="suspend",
            tag_price=Decimal("0.40"),
        ),
        **changes,
    )
