"""Law of daily closings: whatever comes late, they end as one closing of all that is known.

A node has one instance at a time, as Slurm and EC2 see to it.
"""

import json
from contextlib import nullcontext
from dataclasses import replace

import pytest
from hypothesis import event, given, settings, strategies as st

from slurmplugins.model import records
from slurmplugins.reconciler.instance_ledger import to_json
from tests.fakes.slurmdbd import Row
from tests.unit.accounting.test_records import DAY, HOUR, KEPT, T0, Cluster, entry
from tests.unit.usage.record_store import Person, lines
from tests.unit.usage.test_read_records import page
from toolkit.usage import closed_store

DAYS = 3
STATES = ("COMPLETED", "FAILED", "NODE_FAIL", "CANCELLED by 1", "PREEMPTED", "RUNNING")


@pytest.fixture(scope="module")
def mornings():
    """Return what the bucket has behind each of four days."""
    cluster = Cluster()
    found = []
    for day in range(DAYS + 1):
        cluster.live(T0 + day * DAY, T0 + (day + 1) * DAY)
        buckets = {name: dict(objects) for name, objects in cluster.s3.buckets.items()}
        found.append((buckets, dict(cluster.s3.written)))
    return found.__getitem__


late_facts = st.lists(
    st.fixed_dictionaries(
        {
            "read": st.integers(1, DAYS),  # the morning at which it is there
            "hour": st.integers(0, 24 * DAYS - 1),  # of its job, which has an instance of its own
            "minutes": st.integers(1, 59),  # that it took; the next hour has another instance
            "state": st.sampled_from(STATES),
            "is_instance": st.booleans(),
            "interrupted": st.booleans(),
        }
    ),
    max_size=4,
)


def add(cluster, fact, now):
    """Write a later row of a job, or of its instance."""
    begun = T0 + fact["hour"] * HOUR
    number = begun // HOUR
    end = begun + 60 * fact["minutes"]
    if not fact["is_instance"]:
        running = fact["state"] == "RUNNING"
        page(
            cluster,
            [Row(number, number, begun + 60, 0 if running else end + 60, state=fact["state"])],
            now,
        )
        return
    cause = "interrupted" if fact["interrupted"] else "suspend"
    item = replace(entry(f"i-{number}", begun), ended_at=float(end), end_cause=cause)
    header = records.first_line("instances", "demo", (begun, now), now)
    body = records.pack(header, json.dumps(to_json(item)) + "\n")
    cluster.s3.put(KEPT, records.instances_key(now, begun, body), body, now)


def see(person, morning):
    """Give a person's bucket what the head has written by then."""
    buckets, written = morning
    for name, objects in buckets.items():
        person.cluster.s3.buckets[name] |= objects
    person.cluster.s3.written |= written


@given(late_facts, st.booleans())
@settings(max_examples=10, deadline=None)
def test_daily_closings_end_as_one_closing_of_all_facts(mornings, tmp_path_factory, facts, at_once):
    """Read and close each morning.

    `at_once` does it as the command, with one open database.
    """
    daily = Person(Cluster(), tmp_path_factory.mktemp("daily"))
    whole = Person(daily.cluster, tmp_path_factory.mktemp("whole"))
    results = []
    for number in range(DAYS + 1):
        now = T0 + (number + 1) * DAY
        see(daily, mornings(number))
        for position, fact in enumerate(facts):
            if fact["read"] == number:
                add(daily.cluster, fact, now + position)
        with daily.store.working() if at_once else nullcontext():
            daily.read(now + HOUR)
            results += daily.close(now + HOUR)
    event(f"corrections: {sum(item.correction is not None for item in results)}")
    whole.read(now + HOUR)
    whole.close(now + HOUR)
    known, expected = (closed_store.read(person.store).days for person in (daily, whole))
    assert {day: item.micro for day, item in known.items()} == {
        day: item.micro for day, item in expected.items()
    }
    times = (T0, max(known) + DAY, now + HOUR)
    report = daily.report(*times)
    assert lines(report) == lines(whole.report(*times)) == lines(daily.anew(*times))
    assert daily.close(now + 2 * HOUR) == []
