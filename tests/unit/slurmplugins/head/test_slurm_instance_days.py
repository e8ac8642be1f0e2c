"""Days of Slurm's own list of instances in records."""

import pytest

from slurmplugins.head.slurm_instance_days import FIRST_SECONDS, SlurmInstanceDays
from slurmplugins.model import records
from slurmplugins.model.records import DAY
from slurmplugins.slurm.sacct import INSTANCE_FIELDS, INSTANCE_LOOK_BACK
from tests.fakes.slurmdbd import FakeRecordStore

TODAY = 1_795_219_200
NOW = TODAY + 600
TEXT = "demo|gpu-001|1|2|i-1|g5.xlarge|x|y\n"


class Accounting:
    """A slurmdbd with one instance."""

    def __init__(self) -> None:
        self.calls = []

    def instances(self, cluster, since):
        self.calls.append((cluster, since))
        return TEXT


@pytest.fixture
def accounting():
    return Accounting()


@pytest.fixture
def store():
    return FakeRecordStore()


@pytest.fixture
def days(accounting, store):
    return SlurmInstanceDays("burst", "site", accounting, store)


def test_a_day_that_is_over_is_written_once_as_slurm_printed_it(days, accounting, store):
    assert days.run(TODAY - DAY, NOW) == TODAY
    assert days.run(TODAY, NOW + 1800) == TODAY
    assert accounting.calls == [("site", TODAY - DAY - INSTANCE_LOOK_BACK)]
    ((key, body),) = store.objects.items()
    parsed = records.parse_key(key)
    assert (parsed.since, parsed.until, parsed.digest) == (TODAY - DAY, TODAY, records.digest(body))
    header, content = records.unpack(body)
    assert content == TEXT
    assert (header["kind"], header["cluster"], header["written"]) == (
        "slurm-instances",
        "burst",
        NOW,
    )
    assert header["fields"] == list(INSTANCE_FIELDS)


@pytest.mark.parametrize(
    ("next_day", "first"),
    [
        (None, TODAY - FIRST_SECONDS),
        (TODAY - 9 * DAY, TODAY - 9 * DAY - INSTANCE_LOOK_BACK),
        (TODAY + 5 * DAY, TODAY - DAY - INSTANCE_LOOK_BACK),
    ],
)
def test_the_first_day_and_one_after_an_absence_look_further_back(
    days, accounting, store, next_day, first
):
    """A clock that was set back has the day written anew."""
    assert days.run(next_day, NOW) == TODAY
    assert accounting.calls == [("site", first)]
    assert len(store.objects) == 1
