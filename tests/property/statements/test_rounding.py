"""Laws of statements: lines add up to sums, accounts to the report, debits to credits."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

from hypothesis import given, strategies as st

from tests.unit.statements.statement_samples import ISSUE
from toolkit.accounting.attempt_names import Names
from toolkit.accounting.charges import Component
from toolkit.accounting.roll_up import rolled_up
from toolkit.statements import accounting_journal
from toolkit.statements.build import Content, build
from toolkit.statements.cents import CENT, apportioned, cents, percent_of
from toolkit.statements.documents import documents
from toolkit.statements.settings import AccountFacts, Rates, StatementSettings
from toolkit.statements.uses import Use, corrections, use_of

ACCOUNTS = ("science", "vision", "language", "video")
PARENTS = {"science": "root", "vision": "science", "language": "science", "video": "vision"}
micros = st.integers(-(10**9), 10**12)


@st.composite
def uses(draw):
    return Use(
        account=draw(st.sampled_from(("", "(no account)", "others", *ACCOUNTS))),
        user=draw(st.sampled_from(("ada", "grace", ""))),
        project=draw(st.sampled_from(("", "imagenet"))),
        job=draw(st.sampled_from(("1", "2"))),
        component=draw(st.sampled_from(list(Component))).value,
        instance=draw(st.sampled_from(("i-1", "i-2"))),
        instance_type=draw(st.sampled_from(("g5.xlarge", "c7i.large", ""))),
        micro=draw(micros),
        seconds=Fraction(draw(st.integers(0, 10**7)), draw(st.integers(1, 9))),
        known=draw(st.booleans()),
    )


@st.composite
def settings_of_accounts(draw):
    percents = st.decimals(0, 100, places=2)
    rates = Rates(
        "2026-11-01",
        draw(st.none() | st.decimals("0.01", 40, places=4)),
        draw(st.just({}) | st.just({"c7i.large": Decimal("0.11")})),
        {"g5.xlarge": 1},
    )
    is_rated = draw(st.booleans())
    accounts = {
        name: AccountFacts(
            name,
            PARENTS[name],
            discount_percent=draw(percents),
            subsidy_cents=draw(st.sampled_from((0, 1, 10_000, 10**9))),
        )
        for name in draw(st.sets(st.sampled_from(ACCOUNTS)))
    }
    return StatementSettings(
        "demo",
        list_price="rate-card" if is_rated else "cost",
        rates=rates if is_rated or draw(st.booleans()) else None,
        default_discount=draw(percents),
        accounts=accounts,
    )


def issue_of(settings):
    return replace(ISSUE, list_price=settings.list_price)


contents = st.builds(
    Content,
    st.lists(uses(), max_size=8).map(tuple),
    st.dictionaries(
        st.sampled_from(("2026-09", "2026-10")), st.lists(uses(), min_size=1, max_size=4).map(tuple)
    ),
    st.just({}),
)


@given(st.lists(micros, max_size=30))
def test_parts_in_cents_add_up_to_the_rounded_sum(amounts):
    parts = apportioned(amounts)
    assert sum(parts) == cents(sum(amounts))
    assert all(abs(part * CENT - micro) < CENT for part, micro in zip(parts, amounts, strict=True))


@given(micros)
def test_a_cent_is_the_nearest_one(micro):
    assert abs(cents(micro) * CENT - micro) * 2 <= CENT


@given(st.integers(-(10**9), 10**9), st.decimals(0, 100, places=2))
def test_a_percentage_is_the_nearest_cent(amount, percent):
    exact = Fraction(percent) * amount / 100
    assert abs(percent_of(amount, percent) - exact) * 2 <= 1


@given(contents, settings_of_accounts(), st.sampled_from(Names))
def test_the_lines_of_a_statement_add_up(content, settings, names):
    made = build(content, settings, issue_of(settings), names)
    for item in made.statements:
        assert sum(line.cents for line in item.due_lines) == item.due
        assert sum(line.cents for line in item.cost_lines) == item.cost
        assert sum(line.cents for line in item.projects) == item.cost
        if names is Names.OWN:
            assert sum(line.cents for line in item.users) == item.cost
        if item.rated is not None:
            assert sum(line.cents for line in item.rate_lines) == item.rated
        assert item.due >= 0 or item.due == sum(
            line.cents for line in item.due_lines if not line.text.startswith("Subsidy")
        )


@given(contents, settings_of_accounts())
def test_accounts_and_the_cluster_add_up_to_the_cost(content, settings):
    made = build(content, settings, issue_of(settings), Names.NONE)
    own = sum(item.cost for item in made.statements)
    total = cents(sum(use.micro for use in content.uses))
    corrected = sum(
        line.cents
        for item in made.statements
        for line in item.due_lines
        if line.text.startswith("Correction")
    )
    if settings.list_price == "cost":
        late = sum(cents(sum(use.micro for use in own)) for own in content.corrections.values())
        assert own + corrected + made.cluster == total + late
    accounts = {use.account for use in content.uses if use.account}
    assert accounts <= {item.account.name for item in made.statements}


@given(contents, settings_of_accounts())
def test_an_account_has_its_own_due_and_that_of_its_children(content, settings):
    made = build(content, settings, issue_of(settings), Names.NONE)
    totals = {item.account.name: item.total for item in made.statements}
    for item in made.statements:
        children = [name for name in settings.children(item.account.name) if name in totals]
        assert item.total == item.due + sum(totals[name] for name in children)
        assert [(line.text, line.cents) for line in item.below] == [
            (name, totals[name]) for name in children
        ]
    tops = [item for item in made.statements if item.account.parent not in totals]
    assert sum(item.total for item in tops) == sum(item.due for item in made.statements)


@given(contents, settings_of_accounts())
def test_the_journal_balances_entry_by_entry(content, settings):
    made = build(content, settings, issue_of(settings), Names.NONE)
    sums: dict[int, int] = {}
    for item in accounting_journal.postings(made, settings):
        assert (item.debit > 0) != (item.credit > 0)
        sums[item.entry] = sums.get(item.entry, 0) + item.debit - item.credit
    assert not any(sums.values())
    lines = accounting_journal.as_csv(made, settings).splitlines()
    assert len(lines) == 1 + len(list(accounting_journal.postings(made, settings)))


@given(contents, settings_of_accounts())
def test_the_same_content_has_the_same_bytes(content, settings):
    first, second = (
        documents(build(content, settings, issue_of(settings), Names.ALL), settings)
        for _ in range(2)
    )
    assert first == second


@given(st.lists(uses(), max_size=8), st.lists(uses(), max_size=8))
def test_booked_uses_and_their_correction_are_what_is_known(known, booked):
    found = corrections("2026-10", known, booked)
    assert corrections("2026-10", known, [*booked, *map(use_of, found)]) == () or any(
        item.becomes_unknown for item in found
    )
    assert sum(use.micro for use in booked) + sum(item.micro for item in found) == sum(
        use.micro for use in known
    )


@given(
    st.dictionaries(st.sampled_from((*ACCOUNTS, "others")), micros),
    st.dictionaries(st.sampled_from(ACCOUNTS), st.sampled_from(("root", "science", "vision"))),
)
def test_a_roll_up_has_each_account_once_with_those_below(costs, parents):
    parents = {name: PARENTS[name] for name in parents}
    rows = rolled_up(costs, parents)
    assert len({row.account for row in rows}) == len(rows)
    assert set(costs) <= {row.account for row in rows}
    assert sum(row.with_below for row in rows if row.depth == 0) == sum(costs.values())
    assert sum(row.own for row in rows) == sum(costs.values())
