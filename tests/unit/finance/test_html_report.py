"""The HTML report: what a manager reads, and that names in it are only text."""

import re
from dataclasses import replace

import pytest
from markupsafe import escape

from tests.unit.accounting.samples import an_attempt, an_instance
from tests.unit.finance import busy_month
from tests.unit.finance.samples import (
    DAY,
    HOUR,
    NOVEMBER,
    a_month,
    a_report,
    an_interrupted_job,
    html_of,
    list_prices,
)
from toolkit.accounting.report import Key
from toolkit.accounting.terminal import money
from toolkit.finance.html_report import NOTES, TOP
from toolkit.finance.measures import measures


def many_jobs(count):
    attempts, instances = [], []
    for number in range(1, count + 1):
        first = NOVEMBER + number * HOUR
        name = f"gpu-{number:03}"
        times = {"submitted": first, "started": first, "ended": first + number * 60}
        attempts.append(
            an_attempt(number, job_id=str(number), user=f"u{number:03}", nodes=(name,), **times)
        )
        instances.append(
            an_instance(f"i-{number}", node=name, launched=first, ended=times["ended"])
        )
    return a_report(attempts, instances)


def test_a_list_has_the_dearest_and_one_row_for_the_rest():
    report = many_jobs(25)
    page = html_of(report)
    for user in ("u025", "u016"):
        assert f">{user}<" in page
    assert ">u015<" not in page
    assert page.count(f">{25 - TOP} more<") == 2  # by account and user, and by job
    for cost in report.costs:
        assert cost.instance_id not in page


def test_the_rows_of_a_list_sum_to_the_total():
    report = many_jobs(25)
    page = html_of(report, keys=(Key.USER,))
    section = page.split("<h2>Dearest by user</h2>")[1].split("</table>")[0]
    amounts = re.findall(r"<tr.*?</td><td class=\"n\">([\d,.]+)</td>", section)
    rows = [float(text.replace(",", "")) for text in amounts]
    assert sum(rows[:-1]) == pytest.approx(rows[-1])
    assert amounts[-1] == money(report.net, report.gross)


def test_jobs_are_listed_once_also_if_rows_are_by_job():
    assert html_of(a_month(), keys=(Key.JOB,)).count("<h2>Dearest by job</h2>") == 1
    assert html_of(a_month()).count("<h2>Dearest by job</h2>") == 1


@pytest.mark.parametrize("name", ["<script>x</script>", '"><img src=x>', "{{ 7*7 }}", "a&b"])
def test_names_are_text_in_every_place(name):
    attempts, instances = an_interrupted_job()
    hostile = [replace(item, account=name, user=name, name=name) for item in attempts]
    nodes = [replace(item, instance_type=name) for item in instances]
    page = html_of(a_report(hostile, nodes))
    assert "<script" not in page
    assert "<img" not in page
    # The legend, both bars' titles, two lists, and the type.
    assert page.count(str(escape(name))) >= 5


def test_it_loads_nothing_and_runs_nothing():
    page = html_of(a_month())
    for word in ("http://", "https://", "<link", "<script", "@import", "url(", "onload"):
        assert word not in page
    assert "default-src 'none'" in page


def test_trends_are_shown_with_a_period_before_and_else_said_to_be_missing():
    made = measures(a_month(), list_prices())
    assert "there are no trends" in html_of(a_month())
    page = html_of(a_month(), before=made)
    assert "as before" in page
    assert "there are no trends" not in page


def test_notes_are_few_and_the_rest_is_counted():
    report = replace(a_month(), notes=tuple(f"note {number}" for number in range(NOTES + 3)))
    page = html_of(report)
    assert page.count('class="note"') == NOTES
    assert "3 more" in page


def test_an_interruption_and_a_refund_are_told_apart():
    attempts, instances = an_interrupted_job(NOVEMBER + 2 * DAY)
    gone = instances[0].launched + 1800
    early = [replace(attempts[0], ended=gone, comments=""), *attempts[1:]]
    page = html_of(a_report(early, [replace(instances[0], ended=gone), *instances[1:]]))
    assert "spot refund" in page
    assert "spot interruption" not in page.split("<h2>Waste by cause</h2>")[1].split("</table>")[0]


def test_a_busy_month_is_a_small_file():
    page = busy_month.page()
    assert len(page) < 60_000
    assert page.count("<tr") < 80
