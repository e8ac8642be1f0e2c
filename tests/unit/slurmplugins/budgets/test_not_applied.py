"""Budgets that a plan tries before the head has them."""

import json
from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from slurmplugins.budgets.not_applied import with_budgets
from slurmplugins.budgets.plan import plan
from slurmplugins.budgets.printing import printable
from slurmplugins.config import budgets as budgets_config
from slurmplugins.config.budgets import Action, PeriodKind
from slurmplugins.errors import BadName, ConfigError
from tests.fakes.budgets import NOW, a_budget, a_config, a_memory, limits, snapshot

HEAD = a_config()
GRANT = {"period": "grant", "since": 0.0, "until": NOW}


def text_of(config=HEAD, **changes):
    """Return the text that `toolkit budget plan` sends of these budgets."""
    whole = budgets_config.to_json(config)
    return json.dumps(
        {key: whole[key] for key in ("limits", "families", "account_projects")} | changes
    )


def a_limit(**changes):
    return budgets_config.to_json(HEAD)["limits"]["vision-month"] | changes


def test_a_plan_is_of_the_given_budgets_and_of_the_heads_own_settings():
    given = a_config(a_budget((10, Action.REFUSE), usd=a_budget().usd * 2), folder="/etc", tail=9.0)
    config = with_budgets(HEAD, text_of(given))
    assert config == replace(HEAD, budgets=given.budgets)
    made = plan(snapshot(memory=a_memory("85"), config=config))
    assert made.figures[0].step == given.budgets["vision-month"].steps[0]


def test_a_removed_budget_is_planned_as_such():
    memory = a_memory("85", limited=frozenset({"vision"}))
    config = with_budgets(HEAD, text_of(limits={}))
    ours = {"vision": limits(group_minutes=5)}
    made = plan(snapshot(memory=memory, config=config, limits=ours))
    assert made.figures == ()
    assert [(item.value, item.why) for item in made.limits] == [(None, "no budget")]


@pytest.mark.parametrize(
    "text",
    [
        "", "x", "[]", "{}", "[" * 5000, '{"limits": 1, "families": {}, "account_projects": {}}',
        text_of(folder="/etc"),
        text_of(weights={}),
        text_of(limits=[]),
        text_of(families={"vision": 7}),
        text_of(account_projects=[]),
        *(
            text_of(limits={"a": a_limit(**change)})
            for change in (
                {"usd": "NaN"}, {"usd": "-1"}, {"usd": "1e999999"}, {"usd": "1e12"},
                {"usd": "1e-999999999"},
                {"steps": []}, {"steps": [{"at": 10**9, "do": "hold"}]},
                {"steps": [{"at": 0, "do": "hold"}]}, {"steps": [{"at": 50, "do": "sh"}]},
                {"period": "week"}, GRANT | {"until": 1e300}, GRANT | {"since": -1e300},
                {"accounts": [], "projects": []}, {"accounts": None},
                {"accounts": ["vision;id"]}, {"accounts": ["--help"]}, {"accounts": ["a,b"]},
            )
        ),
        text_of(limits={"a\x1b[31m": a_limit()}),
        text_of(limits={"a b": a_limit()}),
    ],
)  # fmt: skip
def test_budgets_that_no_cluster_yaml_has_are_refused_in_a_short_line(text):
    with pytest.raises((BadName, ConfigError)) as caught:
        with_budgets(HEAD, text)
    assert len(str(caught.value)) < 300


json_values = st.sampled_from(
    [None, True, 7, -1, 0.5, 1e300, "", "x", "\ud800", [], ["x"], [[]], [{}], {}, {"at": 1}, "7"]
)
damaged_limits = st.fixed_dictionaries(
    {key: st.just(value) | json_values for key, value in a_limit().items()}
)


@given(st.dictionaries(st.just("vision-month") | st.text(max_size=6), damaged_limits, max_size=2))
def test_a_damaged_budget_is_refused_or_can_be_planned_with(damaged):
    try:
        config = with_budgets(HEAD, text_of(limits=damaged))
    except (BadName, ConfigError):
        return
    before = snapshot(memory=a_memory("85"), config=config)
    assert json.dumps(printable(plan(before), before))


def test_a_grant_may_be_planned_before_it_begins():
    later = a_budget(kind=PeriodKind.GRANT, since=NOW + 9, until=NOW + 99)
    config = with_budgets(HEAD, text_of(a_config(later)))
    assert plan(snapshot(memory=a_memory("85"), config=config)).limits == ()
