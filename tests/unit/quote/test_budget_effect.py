"""A quote says what is left of the budgets that pay for a job, before and after it."""

import json
from dataclasses import replace
from decimal import Decimal

import pytest

from slurmplugins.budgets.memory import Override
from slurmplugins.budgets.plan import plan
from slurmplugins.budgets.printing import printable
from slurmplugins.config.budgets import Action, PeriodKind
from tests.fakes.budgets import DECEMBER, NOVEMBER, NOW, a_budget, a_job, a_memory, snapshot
from tests.unit.quote.samples import attempt, request
from tests.unit.quote.test_quote import quote
from tests.unit.render.render_samples import a_config
from toolkit.errors import HeadCommandFailed
from toolkit.output import print_json
from toolkit.quote import budget_effect, words
from toolkit.render.budgets import budgets_config

BUDGETS = {
    "vision-month": {"account": "vision", "usd": 100},
    "imagenet-month": {"project": "imagenet", "usd": 50, "steps": [{"at": 80, "do": "warn"}]},
}
ACCOUNTS = [
    {"name": "vision"},
    {"name": "lab", "parent": "vision"},
    {"name": "speech", "project": "ImageNet"},
]
CONFIG = a_config(budgets=BUDGETS, accounts=ACCOUNTS)


class Head:
    """A head on which vision spent so much; a job of a dollar still runs."""

    def __init__(self, memory=None, config=None, answer=None) -> None:
        given = config or budgets_config(CONFIG)
        made = snapshot(a_job(), memory=memory or a_memory("85"), config=given)
        self.answer = answer or json.dumps(printable(plan(made), made))
        self.commands = []

    def run(self, argv, *, timeout):
        self.commands.append(argv)
        return self.answer


def quoted(*options, head=None, config=CONFIG, **history):
    made = quote(*options, **history)
    effects = budget_effect.fetch(head or Head(), config, made.request, made.price(made.first))
    return replace(made, budgets=effects)


def of_grant(**changes):
    """Return a head whose only budget is a grant."""
    grant = a_budget(kind=PeriodKind.GRANT, **{"since": NOVEMBER, "until": DECEMBER, **changes})
    return Head(config=replace(budgets_config(CONFIG), budgets={grant.name: grant}))


def test_a_quote_tells_what_is_left_of_the_budget_and_what_is_left_after_the_job():
    text = words.lines(quoted(attempts=[attempt()]))
    assert (
        "budget vision-month: 13.98 of 100.00 USD left until 2026-12-01;"
        " 10.78 to 13.58 after this job"
    ) in text


def test_without_earlier_jobs_the_job_is_taken_to_run_its_whole_limit():
    assert "left until 2026-12-01; 10.78 after this job" in words.lines(quoted())


def test_an_account_is_paid_by_the_budget_of_an_account_above_it():
    assert "budget vision-month" in words.lines(quoted("--account=lab"))


@pytest.mark.parametrize("options", [("--wckey=ImageNet", "--account=lab"), ("--account=speech",)])
def test_a_job_is_paid_by_the_budget_of_its_project(options):
    assert "budget imagenet-month: 50.00 of 50.00 USD left" in words.lines(quoted(*options))


def test_the_key_in_the_environment_names_the_project_as_it_does_for_sbatch():
    made = request(SBATCH_WCKEY="imagenet")
    assert made.wckey == "imagenet"


def test_a_job_that_no_budget_pays_for_is_told_so():
    config = a_config(budgets=BUDGETS, accounts=[*ACCOUNTS, {"name": "robotics"}])
    text = words.lines(quoted("--account=robotics", config=config))
    assert "budget: none pays for jobs of robotics" in text


def test_the_heads_own_settings_say_which_budget_pays():
    """Move the lab and drop a budget, where neither is applied."""
    moved = a_config(
        budgets={"vision-month": BUDGETS["vision-month"]},
        accounts=[{"name": "vision"}, {"name": "lab"}, {"name": "speech"}],
    )
    assert "budget vision-month" in words.lines(quoted("--account=lab", config=moved))
    assert "budget imagenet-month" in words.lines(quoted("--account=speech", config=moved))


def test_a_budget_of_less_than_a_cent_costs_no_quote():
    answer = json.loads(Head().answer)
    answer["budgets"] = [item | {"usd": "0.00"} for item in answer["budgets"]]
    made = quoted(head=Head(answer=json.dumps(answer)))
    assert made.budgets.unknown == "the head gives no figures"


def test_a_cluster_without_budgets_asks_the_head_nothing():
    head = Head()
    made = quoted(head=head, config=a_config())
    assert made.budgets is None
    assert not head.commands
    assert "budget" not in words.lines(made)


def test_a_job_that_may_reach_a_step_is_warned_of_it():
    (effect,) = quoted("--array=0-2").budgets.effects
    assert [(step.at, step.do) for step in effect.steps] == [(90, "warn")]
    assert "warning: with what runs it may bring vision-month to 96%: warn at 90%" in words.lines(
        quoted("--array=0-2")
    )


def test_a_step_that_was_reached_is_no_warning():
    assert "warning" not in words.lines(quoted())


def test_a_job_that_costs_more_than_is_left_is_told_that_it_would_wait():
    text = words.lines(quoted("--array=0-9"))
    assert "; -18.02 after this job" in text
    assert "warn at 90%, hold at 100%" in text
    assert "warning: vision-month has too little left for its whole time limit: it waits" in text


def test_steps_that_hold_are_told():
    text = words.lines(quoted(head=Head(a_memory("101"))))
    assert "vision-month: hold holds now" in text
    assert "it waits" in text


def test_a_grant_that_ended_pays_no_job():
    text = words.lines(quoted(head=of_grant(until=NOW)))
    assert "warning: vision-month: the grant ended on 2026-11-26 and pays no job" in text


def test_a_grant_that_is_still_to_come_is_left_out():
    made = quoted(head=of_grant(since=NOW + 86_400, until=NOW + 9 * 86_400))
    assert made.budgets.effects == ()


def test_an_override_that_lifts_all_steps_lets_the_job_go_on():
    lift = Override(NOW + 3600, "eve", "deadline", NOW)
    made = quoted("--array=0-9", head=Head(a_memory("85", overrides={"vision-month": lift})))
    (effect,) = made.budgets.effects
    assert (effect.steps, effect.waits) == ((), False)


def test_stale_figures_say_so():
    text = words.lines(quoted(head=Head(a_memory("85", measured_until=NOW - 7200))))
    assert "vision-month: these figures are of 2026-11-26 10:00 UTC" in text


@pytest.mark.parametrize("answer", ["", "{}", "[1]", '{"at": 1, "budgets": [{}]}'])
def test_an_answer_that_can_not_be_read_costs_no_quote(answer):
    made = quoted(head=Head(answer=answer or " "))
    assert made.budgets.effects is None
    assert "budget: not known, the head gives no figures" in words.lines(made)


def test_a_head_that_does_not_answer_costs_no_quote():
    class Silent:
        def run(self, argv, *, timeout):
            raise HeadCommandFailed("away")

    assert quoted(head=Silent()).budgets.effects is None


def test_a_job_of_an_unknown_price_leaves_an_unknown_rest():
    made = quote()
    effects = budget_effect.fetch(Head(), CONFIG, made.request, None)
    (effect,) = effects.effects
    assert (effect.usd_left_after, effect.steps, effect.waits) == (None, (), None)
    assert "; ? after this job" in words.lines(replace(made, budgets=effects))


def test_json_has_the_budgets_with_amounts_as_text(capsys):
    print_json(words.as_json(quoted()))
    (effect,) = json.loads(capsys.readouterr().out)["budgets"]["effects"]
    assert (effect["name"], effect["usd_left"]) == ("vision-month", "13.98")
    assert Decimal(effect["usd_left_after"]) == Decimal("10.78")
    assert effect["until"] == "2026-12-01T00:00:00+00:00"
    print_json(words.as_json(quote()))
    assert json.loads(capsys.readouterr().out)["budgets"] is None


def test_only_a_limit_that_holds_makes_a_job_wait():
    warns = a_budget((50, Action.WARN))
    head = Head(config=replace(budgets_config(CONFIG), budgets={warns.name: warns}))
    (effect,) = quoted("--array=0-9", head=head).budgets.effects
    assert (effect.usd_left, effect.waits) == (Decimal("13.98"), False)
