"""The whole report, on what the sacct of three versions of Slurm answered about the same jobs."""

import pytest

from tests.golden.captured_fields import asked
from tests.golden.slurm.recorded import VERSIONS, Recorded
from tests.unit.accounting.samples import G5, a_book, an_instance
from toolkit.accounting import export, sacct
from toolkit.accounting.allocation import Window
from toolkit.accounting.build import build
from toolkit.accounting.charges import Component
from toolkit.accounting.report import Key

TOKEN = "0f1e2d3c4b5a69788796a5b4c3d2e1f0"
INSTANCE = "i-0123456789abcdef0"
MICRO_A_SECOND = 100  # 0.36 dollars an hour


def report_of(version, lacking=()):
    """Return the report of the version, as if sacct lacked some fields."""
    recorded = Recorded(version)
    names = asked(recorded.text("sacct-helpformat.txt"))
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
    names = {str(number): name for name, number in Recorded(version).jobs.items()}
    return {
        (names[report.attempts[charge.attempt].job.partition("_")[0]], charge.component)
        for charge in report.charges()
        if charge.attempt is not None and charge.micro
    }


@pytest.mark.parametrize("version", VERSIONS)
def test_every_second_of_the_instance_is_in_the_report(version):
    report = report_of(version)
    assert report.net == (report.window.until - report.window.since) * MICRO_A_SECOND
    assert sum(group.total for group in report.groups([Key.JOB])) == report.net
    assert report.set_aside == ()
    assert report.unknown_costs == ()
    assert report.notes == ()


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
