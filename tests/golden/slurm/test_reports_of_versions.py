"""The whole report, on what the sacct of three versions of Slurm answered about the same jobs."""

from fractions import Fraction

import pytest

from tests.golden.slurm.recorded import VERSIONS, Recorded, asked_fields
from tests.unit.accounting.samples import G5, a_book, an_instance
from toolkit.accounting import export, sacct
from toolkit.accounting.allocation import Window
from toolkit.accounting.build import build
from toolkit.accounting.charges import Component
from toolkit.accounting.report import Key

TOKEN = "0f1e2d3c4b5a69788796a5b4c3d2e1f0"
INSTANCE = "i-0123456789abcdef0"
MICRO_A_SECOND = 100  # 0.36 dollars an hour
NOBODY = ("(cluster)", None)

# The charges of the captured jobs, derived by hand of sacct.txt. Seconds count from the first
# job's submission, when the instance is launched. The report ends a minute after the last start.
# Each job has 1 of 4 CPUs, and 3891 of 16000 MiB are less, so it pays a quarter of its seconds.
# The first attempt pays the boot up to its start. It ended in that second, so the time up to its
# second attempt is its idle gap. Jobs that started and ended in one second cost nothing.
# The versions ran the same jobs, each at its own seconds:
#
#             requeued 0  requeued 1  code-137  done   array  end
#     24.11   28 to 28    from 43     51 to 52  53-54  56     118 = 58 + 60
#     25.11   30 to 30    from 45     no time   none   58     120 = 60 + 60
#     26.05   29 to 29    from 45     no time   none   52     114 = 54 + 60
#
# Each row has a job with its attempt, the component, the seconds and the micro-dollars.
CHARGES = {
    "24.11": [
        (("requeued", 0), "boot", 28, 2_800),
        (("requeued", 0), "idle gap", 43 - 28, 1_500),
        (("requeued", 1), "useful work", Fraction(118 - 43, 4), 1_875),
        (("code-137", 0), "lost work", Fraction(52 - 51, 4), 25),
        (("done", 0), "useful work", Fraction(54 - 53, 4), 25),
        (("array", 0), "useful work", Fraction(118 - 56, 4), 1_550),
        (NOBODY, "unallocated", 75 - Fraction(75 + 1 + 1 + 62, 4), 4_025),
    ],
    "25.11": [
        (("requeued", 0), "boot", 30, 3_000),
        (("requeued", 0), "idle gap", 45 - 30, 1_500),
        (("requeued", 1), "useful work", Fraction(120 - 45, 4), 1_875),
        (("array", 0), "useful work", Fraction(120 - 58, 4), 1_550),
        (NOBODY, "unallocated", 75 - Fraction(75 + 62, 4), 4_075),
    ],
    "26.05": [
        (("requeued", 0), "boot", 29, 2_900),
        (("requeued", 0), "idle gap", 45 - 29, 1_600),
        (("requeued", 1), "useful work", Fraction(114 - 45, 4), 1_725),
        (("array", 0), "useful work", Fraction(114 - 52, 4), 1_550),
        (NOBODY, "unallocated", 69 - Fraction(69 + 62, 4), 3_625),
    ],
}


def report_of(version, lacking=()):
    """Return the report of the version, as if sacct lacked some fields."""
    recorded = Recorded(version)
    names = asked_fields(recorded.text("sacct-helpformat.txt"))
    kept_names = [name for name in names if name not in lacking]
    kept_rows = [
        sacct.delimiter(TOKEN).join(row[name] for name in kept_names)
        for row in sacct.rows(recorded.text("sacct.txt"), names, TOKEN)
    ]
    content = sacct.parse(
        "".join(f"{row}\n" for row in kept_rows), kept_names, TOKEN, cluster="demo"
    )
    first = min(attempt.submitted for attempt in content.attempts)
    until = max(attempt.started for attempt in content.attempts) + 60
    instance = an_instance(INSTANCE, launched=first, ended=None)
    return build(
        cluster="demo",
        attempts=content.attempts,
        instances=[instance],
        shapes={INSTANCE: G5},
        book=a_book(),
        window=Window(first, until),
        now=until,
        set_aside=content.set_aside,
    )


def facts_of(version, report):
    """Return what jobs cost, by capture.py's names of them."""
    return {
        (job, Component(component))
        for (job, number), component, _, micro in charges_of(version, report)
        if number is not None and micro
    }


def charges_of(version, report):
    """Return the charges by the names of capture.py."""
    names = {str(number): name for name, number in Recorded(version).jobs.items()}

    def owner(key):
        if key is None:
            return NOBODY
        return names[report.attempts[key].job.partition("_")[0]], report.attempt_numbers[key]

    return [
        (owner(charge.attempt), charge.component.value, charge.seconds, charge.micro)
        for charge in report.charges()
    ]


@pytest.mark.parametrize("version", VERSIONS)
def test_every_second_of_the_instance_is_in_the_report(version):
    report = report_of(version)
    assert report.net == (report.window.until - report.window.since) * MICRO_A_SECOND
    assert sum(group.total for group in report.groups([Key.JOB])) == report.net
    assert report.set_aside == ()
    assert report.unknown_costs == ()
    assert report.notes == ()


@pytest.mark.parametrize("version", VERSIONS)
def test_each_jobs_charges_are_those_that_were_derived_by_hand(version):
    expected = CHARGES[version]
    assert sorted(charges_of(version, report_of(version)), key=str) == sorted(expected, key=str)
    assert all(micro == seconds * MICRO_A_SECOND for _, _, seconds, micro in expected)


@pytest.mark.parametrize("version", VERSIONS)
def test_each_job_has_its_own_costs(version):
    facts = facts_of(version, report_of(version))
    assert {("requeued", Component.BOOT), ("requeued", Component.WORK)} <= facts
    assert ("array", Component.WORK) in facts
    owners = {name for name, _ in facts}
    assert not owners & {"held", "het", "powering-up"}
    lost = {name for name, component in facts if component is Component.LOST}
    assert lost <= {"failed", "killed", "code-137"}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("lacking", [(), ("Restarts",)])
def test_a_requeued_job_has_two_attempts_also_without_a_count_of_restarts(version, lacking):
    report = report_of(version, lacking)
    job = str(Recorded(version).jobs["requeued"])
    attempts = [item for item in report.attempts.values() if item.job == job]
    assert sorted(report.attempt_numbers[item.key] for item in attempts) == [0, 1]
    assert {report.job_labels[item.key] for item in attempts} == {job}
    assert export.as_json(report, [Key.JOB])["total"] == export.money(report.net)


def test_a_field_that_no_version_may_lack_is_named():
    with pytest.raises(sacct.SacctError, match="AllocTRES"):
        sacct.fields(Recorded("26.05").text("sacct-helpformat.txt").replace("AllocTRES", ""))
