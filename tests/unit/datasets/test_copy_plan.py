"""The plan of a copy between a filesystem and S3: bytes, time and dollars."""

from __future__ import annotations

import re
from decimal import Decimal

import pytest

from toolkit.datasets import chunks
from toolkit.datasets.copy_plan import (
    CopyRates,
    duration,
    plan_get,
    plan_put,
    site_data,
    transfer_seconds,
)
from toolkit.datasets.store.manifest import File, make_manifest

RATES = CopyRates(
    mbit_per_second=800.0,  # 100 MB a second
    usd_per_gb_out=Decimal("0.09"),
    usd_per_1000_puts=Decimal(5),
    usd_per_1000_gets=Decimal(1),
)
GB = 1_000_000_000


def file(path, size, digit="a"):
    return File(path, size, tuple(f"{digit * 62}{n:02x}" for n in range(chunks.count(size))))


SMALL, LARGE, SAME = file("small", 1000), file("large", 3 * chunks.CHUNK, "b"), file("same", 1000)
MANIFEST = make_manifest([SMALL, LARGE, SAME])


def test_a_put_sends_equal_files_once_and_pays_for_requests_alone():
    plan = plan_put(MANIFEST, (), RATES)
    assert (plan.files, plan.missing_files) == (3, 2)
    assert plan.missing_bytes == 1000 + 3 * chunks.CHUNK
    # 6 records, 1 small file, 3 parts and 3 more for the large one; a look at each of two files
    assert plan.usd == Decimal(13 * 5 + 2) / 1000


def test_a_put_after_a_kill_sends_what_the_store_lacks():
    plan = plan_put(MANIFEST, {LARGE.object}, RATES)
    assert (plan.missing_files, plan.missing_bytes) == (1, 1000)
    assert "would send 1 of 3 files, 0.000 GB of 0.050 GB" in str(plan)


def test_a_get_pays_for_what_leaves_aws():
    plan = plan_get(MANIFEST, (), RATES)
    size = 2000 + 3 * chunks.CHUNK
    assert plan.missing_bytes == size
    assert plan.usd == Decimal(size) / GB * Decimal("0.09") + Decimal(5 + 5 + 6) / 1000


@pytest.mark.parametrize("plan", [plan_put, plan_get])
def test_a_copy_that_is_there_costs_nothing(plan):
    present = {item for file in MANIFEST.files for item in (file.object, file.path)}
    found = plan(MANIFEST, present, RATES)
    assert (found.missing_bytes, found.seconds, found.usd) == (0, 0.0, 0)
    assert str(found).startswith("nothing to copy: all 3 files")


def test_a_file_of_more_chunks_than_s3_has_parts_is_sent_in_larger_parts():
    huge = File("huge", 25_000 * chunks.CHUNK, tuple(f"{n:064x}" for n in range(25_000)))
    plan = plan_put(make_manifest([huge]), (), RATES)
    assert plan.usd == Decimal((6 + 8334 + 3) * 5 + 1) / 1000  # three chunks a part


def test_a_terabyte_over_a_gigabit_takes_two_and_a_quarter_hours():
    seconds = transfer_seconds(1000 * GB, CopyRates(mbit_per_second=1000.0))
    assert seconds == 8000.0
    assert duration(seconds) == "2.2 h"


@pytest.mark.parametrize(("seconds", "text"), [(0.4, "0 s"), (119, "119 s"), (600, "10.0 min")])
def test_a_duration_has_the_unit_that_people_use(seconds, text):
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("size", "word"), [(1, "0.001G"), (1_500_000_000, "1.500G"), (2_000_000_000_000, "2000.000G")]
)
def test_the_governors_word_is_never_less_than_the_data(size, word):
    assert site_data(size) == f"site-data={word}"
    assert re.fullmatch(r"site-data=\d{1,9}(\.\d{1,3})?[MGT]", site_data(size))
