"""The report's rows and charges both sum to the instances' cost."""

import csv
import io
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal

import pytest
from rich.console import Console

from tests.unit.accounting.samples import G5, T0, a_book, an_attempt, an_instance
from tests.unit.finance.samples import html_of
from toolkit.accounting import export, terminal
from toolkit.accounting.allocation import Window
from toolkit.accounting.build import build
from toolkit.accounting.report import Key
from toolkit.accounting.set_aside import SetAside
from toolkit.accounting.tres import Tres

KEYS = [Key.ACCOUNT, Key.USER]


def a_report(attempts, instances, until=T0 + 10_000, set_aside=()):
    return build(
        cluster="demo",
        attempts=attempts,
        instances=instances,
        shapes={instance.instance_id: G5 for instance in instances},
        book=a_book(),
        window=Window(T0, until),
        now=until,
        set_aside=set_aside,
    )


def two_people():
    half = Tres(2, 8000, 0)
    return a_report(
        [
            an_attempt(1, tres=half),
            an_attempt(2, tres=half, user="bob", account="speech", job_id="8"),
            an_attempt(3, started=T0 + 4000, ended=T0 + 5000, state="FAILED", exit_codes=(1, 0)),
        ],
        [
            an_instance(),
            an_instance("i-head", pool="head", node="head", spot=False, ended=None, end_cause=""),
        ],
    )


def printed(report, keys=KEYS, width=80):
    console = Console(width=width, highlight=False, record=True, file=io.StringIO())
    console.print(terminal.render(report, keys))
    return console.export_text()


@pytest.mark.parametrize("keys", [KEYS, [Key.JOB], [Key.ACCOUNT, Key.USER, Key.JOB]])
def test_rows_and_components_both_sum_to_the_instance_cost(keys):
    report = two_people()
    assert sum(group.total for group in report.groups(keys)) == report.net
    assert sum(report.components().values()) == report.net


def test_attempts_are_grouped_by_account_and_user_and_the_rest_comes_last():
    groups = two_people().groups(KEYS)
    assert [group.key_values for group in groups] == [
        ("vision", "ada"),
        ("speech", "bob"),
        ("", ""),
    ]
    assert [len(group.attempts) for group in groups] == [2, 1, 0]


def test_a_job_without_a_user_has_a_row_of_its_own():
    groups = a_report([an_attempt(user="", account="")], [an_instance()]).groups(KEYS)
    assert groups[0].key_values == ("(no account)", "(no user)")


def test_csv_sums_to_the_total_exactly():
    report = two_people()
    rows = list(csv.DictReader(io.StringIO(export.as_csv(report))))
    assert str(sum(Decimal(row["usd"]) for row in rows)) == export.money(report.net)


def test_the_groups_and_charges_of_json_sum_to_its_total():
    report = two_people()
    data = export.as_json(report, KEYS)
    for part in ("groups", "instances"):
        assert sum(Decimal(row["total"]) for row in data[part]) == Decimal(data["total"])
    assert sum(Decimal(row["usd"]) for row in data["charges"]) == Decimal(data["total"])
    assert sum(Decimal(value) for value in data["components"].values()) == Decimal(data["total"])
    assert data["groups"][-1]["account"] is None
    assert {price["source"] for row in data["instances"] for price in row["prices"]} == {
        "history",
        "list",
    }


def test_each_group_of_json_has_the_sources_and_the_oldest_price_of_its_charges():
    report = a_report(
        [an_attempt(1), an_attempt(2, user="bob", nodes=("gpu-002",), tres=Tres(cpus=1))],
        [
            an_instance(),
            an_instance("i-2", node="gpu-002", zone="eu-west-9z", tag_price=None),
            an_instance("i-head", pool="head", node="head", spot=False, ended=None, end_cause=""),
        ],
    )
    data = export.as_json(report, KEYS)
    for group in data["groups"]:
        own = [
            charge
            for charge in data["charges"]
            if [charge["account"], charge["user"]] == [group["account"], group["user"]]
        ]
        sources = {name for charge in own for name in charge["price_source"].split()}
        assert sorted(group["price_sources"]) == sorted(sources)
        assert group["price_as_of"] == min(charge["price_as_of"] for charge in own)
    assert len({tuple(group["price_sources"]) for group in data["groups"]}) > 1


@pytest.mark.parametrize("restarts", [(0, 1), (None, None)])
def test_attempts_are_numbered_within_their_job(restarts):
    """Show the number, since nobody can read keys of 63 bits."""
    keys = (5820489064499176449, 5820489064499176448)
    attempts = [
        an_attempt(key, restarts=number, submitted=T0 + 10 * index)
        for index, (key, number) in enumerate(zip(keys, restarts, strict=True))
    ]
    report = a_report([*attempts, an_attempt(9, job_id="8")], [an_instance()])
    data = export.as_json(report, KEYS)
    expected = {(str(keys[0]), 0), (str(keys[1]), 1), ("9", 0)}
    assert {(row["db_index"], row["attempt"]) for row in data["attempts"]} == expected
    rows = csv.DictReader(io.StringIO(export.as_csv(report)))
    assert {(row["db_index"], row["attempt"]) for row in rows if row["job"]} == {
        (key, str(number)) for key, number in expected
    }


def test_an_attempt_keeps_its_number_in_a_report_without_the_earlier_ones():
    report = a_report([an_attempt(5, restarts=3)], [an_instance()])
    assert [row["attempt"] for row in export.as_json(report, KEYS)["attempts"]] == [3]


@pytest.mark.parametrize(
    "name",
    [
        *("=cmd()", "+1", "-1", "@x", "\t=1", "\n=1", " =1", "\u00a0=1"),
        *("\uff1d1", "\uff0b1", "\uff0d1", "\uff20x"),
    ],
)
def test_a_name_does_not_become_a_formula_in_csv(name):
    report = a_report([an_attempt(account=name, user="ada")], [an_instance()])
    rows = list(csv.DictReader(io.StringIO(export.as_csv(report), newline="")))
    assert {row["account"] for row in rows} <= {f"'{name}", ""}
    assert {row["user"] for row in rows} <= {"ada", ""}


@pytest.mark.parametrize("name", ["\r=1", "x\r=1", "x\r\n=1"])
def test_a_carriage_return_in_a_name_begins_no_row_of_csv(name):
    report = a_report([an_attempt(account=name, user="ada")], [an_instance()])
    rows = list(csv.reader(io.StringIO(export.as_csv(report), newline="")))
    assert {len(row) for row in rows} == {len(export.CHARGE_FIELDS)}


@pytest.mark.parametrize("width", [80, 100])
def test_the_terminal_report_fits_its_width_and_shows_every_component(width):
    text = printed(two_people(), width=width)
    assert all(len(line.rstrip()) <= width for line in text.splitlines())
    for words in ("vision/ada", "boot", "lost work", "head node", "exact sum"):
        assert words in text


def test_the_printed_total_is_the_sum_of_the_printed_components():
    text = printed(two_people())
    table = text.split(" component ")[1].split(" instance  ")[0]
    amounts = [
        Decimal(word)
        for line in table.splitlines()[2:]
        for word in line.split()
        if word.lstrip("-").replace(".", "").isdigit() and len(word.partition(".")[2]) == 6
    ]
    assert sum(amounts[:-1]) == amounts[-1]


def test_names_are_escaped_on_the_terminal_and_in_html():
    report = a_report(
        [an_attempt(account="<script>x</script>", user="\x1b[31mred")], [an_instance()]
    )
    text = printed(report, width=120)
    assert "\x1b" not in text
    page = html_of(report, KEYS)
    assert "<script" not in page
    assert "&lt;script&gt;" in page


@pytest.mark.parametrize("name", ["[/bold]", "[red]x[/red]", "[link=http://x]", "a\\\\[b]"])
def test_names_are_no_markup_on_the_terminal(name):
    report = a_report(
        [an_attempt(account=name, user=name)],
        [an_instance(node="gpu-001", instance_type=name, end_cause=name)],
    )
    text = printed(report, width=200)
    assert f"{name}/{name}" in text
    assert text.count(name) == 4


def test_the_html_page_loads_nothing():
    page = html_of(two_people(), KEYS)
    for word in ("http://", "https://", "<link", "<script", "@import", "url("):
        assert word not in page


def test_a_cluster_without_instances_says_so():
    assert "No instance had a cost" in printed(a_report([], []))
    assert "$0.000000" in html_of(a_report([], []), KEYS)


class CountedCosts(list):
    """Costs that count how often all of them are read."""

    reads = 0

    def __iter__(self) -> Iterator:
        self.reads += 1
        return super().__iter__()


@pytest.mark.parametrize("make", [lambda report: html_of(report, KEYS), printed])
def test_a_longer_report_reads_all_costs_no_more_often(make):
    def reads_of(instance_count):
        nodes = [f"gpu-{number:03}" for number in range(1, instance_count + 1)]
        report = a_report(
            [an_attempt(key, nodes=(node,), user=node) for key, node in enumerate(nodes)],
            [an_instance(f"i-{node}", node=node) for node in nodes],
        )
        costs = CountedCosts(report.costs)
        make(replace(report, costs=costs))
        return costs.reads

    assert reads_of(15) == reads_of(2)


def test_rows_over_forty_are_summed_up():
    attempts = [an_attempt(n, user=f"u{n:03}", tres=Tres(1, 100, 0)) for n in range(1, 61)]
    report = a_report(attempts, [an_instance()])
    text = printed(report)
    assert "(41 more)" in text
    assert terminal.money(report.net, report.gross) in text


def test_large_sums_are_printed_in_cents():
    assert terminal.money(1_234_567_890_000, 2_000_000_000_000) == "1,234,567.89"


def test_records_that_were_set_aside_are_counted_and_named():
    items = [SetAside(f"i-{n}.json", "no record", True) for n in range(5)]
    copy = SetAside("x.json", "a copy", False)
    report = a_report([an_attempt()], [an_instance()], set_aside=[*items, copy])
    assert report.notes == (
        "i-0.json, i-1.json, i-2.json and 2 more: no record, set aside, cost unknown",
        "x.json: a copy, set aside, no cost is missing",
    )
    assert "set aside" in printed(report)
    assert "set aside" in html_of(report, KEYS)
    assert len(export.as_json(report, KEYS)["set_aside"]) == 6


@pytest.mark.parametrize(
    ("attempts", "instances", "words"),
    [
        (
            [an_attempt(nodes=("gpu-009",))],
            [an_instance()],
            "no instance known for their nodes: their cost is unknown",
        ),
        (
            [],
            [an_instance(instance_type="x9.huge", tag_price=None)],
            "no price known: their cost is unknown",
        ),
        ([], [an_instance(zone="eu-west-9z", tag_price=None)], "on-demand price"),
        ([], [an_instance(end_seen=False)], "end not seen"),
        ([], [an_instance(running=T0 + 3000)], "first seen running 2026-11-21 10:50:00"),
        ([], [an_instance(ended=T0 - 99)], "ended 2026-11-21 09:58:21"),
        ([an_attempt(ended=T0 + 9)], [an_instance()], "ended 2026-11-21 10:00:09"),
        ([an_attempt(1, restarts=0), an_attempt(2, restarts=2)], [an_instance()], "lacks"),
    ],
)
def test_the_report_notes_what_makes_it_doubtful(attempts, instances, words):
    (_,) = (note for note in a_report(attempts, instances).notes if words in note)
    assert words.split()[0] in printed(a_report(attempts, instances))


def test_the_note_on_unknown_prices_names_the_command_that_reads_them():
    first, *_ = a_report([], [an_instance(instance_type="x9.huge", tag_price=None)]).notes
    assert "in no sum; `toolkit prices import`" in first


def test_an_unknown_amount_is_never_shown_as_nothing():
    report = a_report(
        [an_attempt(1), an_attempt(2, user="bob", nodes=("gpu-002",))],
        [
            an_instance(),
            an_instance("i-2", node="gpu-002", instance_type="x9.huge", tag_price=None),
        ],
        set_aside=[SetAside("i-3.json", "no record")],
    )
    assert report.unknown_costs == ("i-2", "i-3.json")
    text = printed(report)
    row = next(line for line in text.splitlines() if "vision/bob" in line)
    assert "0.000000" not in row
    assert row.split()[-1] == "?"
    assert "0.720000+?" in text
    assert "0.720000+?" in html_of(report, KEYS)
    data = export.as_json(report, KEYS)
    assert data["unknown_costs"] == ["i-2", "i-3.json"]
    assert {row["usd"] for row in data["charges"] if row["user"] == "bob"} == {None}
    assert [group["has_unknown_cost"] for group in data["groups"]] == [False, True]
    rows = list(csv.DictReader(io.StringIO(export.as_csv(report))))
    assert {row["usd"] for row in rows if row["user"] == "bob"} == {"unknown"}
    assert (rows[-1]["component"], rows[-1]["instance"]) == ("unknown", "i-3.json")


def test_a_report_of_unknown_costs_alone_says_so():
    text = printed(a_report([], [], set_aside=[SetAside("i-3.json", "no record")]))
    assert "No instance had a known cost" in text
    assert "note: i-3.json: no record, set aside, cost unknown" in text
