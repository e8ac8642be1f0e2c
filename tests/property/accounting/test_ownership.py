"""Laws of ownership: every second is somebody's, or says why it is not.

They hold for any answer of sacct and any instance ledger.
"""

from dataclasses import replace

from hypothesis import given, settings, strategies as st

from tests.property.accounting.test_conservation import END, attempts, books, instances, report
from tests.unit.accounting.samples import an_attempt, an_instance
from toolkit.accounting.allocation import Window
from toolkit.accounting.charges import Component
from toolkit.accounting.instances import NEVER_UP

EVER = Window(0, END + 6000)
NOBODYS = {
    Component.UNALLOCATED,
    Component.IDLE,
    Component.FAILED_LAUNCH,
    Component.HEAD,
    Component.OTHER,
    Component.MINIMUM,
    Component.REFUND,
}
USE = {Component.WORK, Component.LOST}


def charges_by_instance(result):
    for cost in result.costs:
        instance = result.instances[cost.instance_id]
        charges = [item for item in cost.charges if item.component is not Component.REFUND]
        yield instance, charges


@given(instances(), attempts(), books())
@settings(max_examples=150, deadline=None)
def test_a_second_without_an_owner_has_a_component_that_says_why(all_instances, tries, book):
    for instance, charges in charges_by_instance(report(all_instances, tries, book, EVER)):
        unowned = {item.component for item in charges if item.attempt is None}
        assert unowned <= NOBODYS
        assert (Component.HEAD in unowned) <= instance.is_head
        assert (Component.OTHER in unowned) <= (not instance.node)


@given(instances(), attempts(), books())
@settings(max_examples=150, deadline=None)
def test_a_job_pays_for_its_own_nodes_and_for_no_second_before_its_submission(
    all_instances, tries, book
):
    result = report(all_instances, tries, book, EVER)
    for instance, charges in charges_by_instance(result):
        end = max(instance.ended or EVER.until, instance.billed_from + 60)
        for charge in charges:
            if charge.attempt is None:
                continue
            attempt = result.attempts[charge.attempt]
            assert instance.node in attempt.nodes
            begin = max(attempt.submitted or 0, instance.billed_from)
            own = [item.seconds for item in charges if item.attempt == charge.attempt]
            assert sum(own) <= end - begin


@given(instances(), attempts(), books())
@settings(max_examples=150, deadline=None)
def test_a_launch_failed_only_where_slurm_says_so_and_no_job_ran(all_instances, tries, book):
    for instance, charges in charges_by_instance(report(all_instances, tries, book, EVER)):
        components = {item.component for item in charges}
        if Component.FAILED_LAUNCH in components:
            assert instance.end_cause in NEVER_UP
            assert not components & USE


@given(instances(), attempts(), books())
@settings(max_examples=150, deadline=None)
def test_the_time_behind_a_job_is_idle_for_nobody_on_static_nodes_alone(all_instances, tries, book):
    """Leave idle time to nobody only ahead of all jobs."""
    for instance, charges in charges_by_instance(report(all_instances, tries, book, EVER)):
        components = {item.component for item in charges}
        if instance.static:
            assert not components & {Component.IDLE_GAP, Component.IDLE_TAIL}
        elif Component.IDLE in components:
            owners = {item.attempt for item in charges if item.attempt is not None}
            starts = [
                max(attempt.started, instance.launched)
                for attempt in tries
                if attempt.key in owners
            ]
            idle = sum(item.seconds for item in charges if item.component is Component.IDLE)
            assert not starts or idle <= max(min(starts) - instance.billed_from, 0)


@given(st.integers(0, 3000), st.integers(0, 3000), st.integers(0, 600), books())
@settings(max_examples=100, deadline=None)
def test_what_was_started_for_a_job_is_that_jobs_however_short_it_ran(boot, work, tail, book):
    """Let a job wait since the launch, and run for any time."""
    instance = replace(an_instance(), launched=1000, ended=1000 + boot + work + tail)
    attempt = an_attempt(submitted=990, started=1000 + boot, ended=1000 + boot + work)
    result = report([instance], [attempt], book, EVER)
    for _, charges in charges_by_instance(result):
        assert {item.attempt for item in charges} <= {attempt.key}
        used = sum(item.seconds for item in charges if item.component in USE)
        assert used == work
