"""A quote says what a job costs at its limit and as before, and what it does to the share."""

import json
from decimal import Decimal

import pytest

from tests.unit.quote.samples import DAY, NOW, attempt, instance, market, request
from tests.unit.render.render_samples import CPU_POOL, GPU_POOL
from toolkit.errors import HeadCommandFailed
from toolkit.output import print_json
from toolkit.quote import offers, share, words
from toolkit.quote.errors import UnknownAccount
from toolkit.quote.history import history
from toolkit.quote.quote import Quote, subject

SSHARE = "root||1.000000|3600000\n vision||0.600000|900000\n vision|ada|0.6|900000\n"


def quote(*options, attempts=(), instances=(), own_share=None):
    place = market()
    wanted = offers.resolved(request(*options), place.config)
    found = offers.offers(wanted, place)
    known = history(subject(wanted, found), attempts, instances, (NOW - 30 * DAY, NOW))
    return Quote(NOW, wanted, found, known, 30, own_share)


def test_a_quote_without_history_says_so_and_guesses_nothing():
    text = words.lines(quote())
    assert "earlier jobs of this name: no history in 30 days" in text
    assert "wait in spot: no history in 30 days" in text
    assert "interruptions: no history of spot instances" in text
    assert "share of vision: not known" in text


def test_a_quote_with_history_says_what_the_job_costs_as_before():
    made = quote(attempts=[attempt()], instances=[instance(end_cause="interruption")])
    price = made.price(made.first)
    assert (price.usd_limit, price.usd_usual) == (Decimal("3.2000"), Decimal("0.4000"))
    assert price.usd_instance == Decimal("0.0167")  # 120 s of boot and 30 s of idle tail
    assert made.expected_interruptions(made.first) == pytest.approx(0.5)
    text = words.lines(made)
    assert "earlier jobs of this name: 1 h (median of 1)" in text
    assert "wait in spot: 5 m (median of 1)" in text
    assert "1 in 2.0 instance-hours" in text
    assert "spot is 60% below on demand" in text


def test_the_idle_tail_is_that_of_the_records():
    """Idle for 120 s in the records, where cluster.yaml says 30."""
    last = attempt(ended=NOW - DAY + 6960)
    made = quote(attempts=[last], instances=[instance()])
    assert made.price(made.first).usd_instance == Decimal("0.0267")
    assert "2 m boot, 2 m idle after the job" in words.lines(made)


def test_an_array_costs_as_much_as_its_tasks():
    assert quote("--array=0-9").price(quote().first).usd_limit == Decimal("32.0000")


def test_an_array_takes_the_share_of_all_of_its_tasks():
    one, ten = quote(), quote("--array=0-9")
    assert ten.usd_limit == 10 * one.usd_limit == 10 * one.price(one.first).usd_limit


def test_a_job_of_an_unknown_price_is_not_taken_to_cost_nothing():
    unknown = {**GPU_POOL, "offerings": [{"type": "x9.large", "capacity": "spot"}]}
    place = market(pools={"gpu": unknown, "cpu": CPU_POOL})
    wanted = offers.resolved(request(), place.config)
    found = offers.offers(wanted, place)
    known = history(subject(wanted, found), (), (), (NOW - 30 * DAY, NOW))
    made = Quote(NOW, wanted, found, known, 30, share.parse(SSHARE, "vision", None))
    assert made.usd_limit is None
    text = words.lines(made)
    assert "new instances cost ? USD more" in text
    assert "recent usage 25.0%, with this job ?" in text
    assert words.as_json(made)["share"].used_with_job is None


def test_the_share_before_and_with_the_job():
    known = share.parse(SSHARE, "vision", 900_000)
    assert (known.share, known.used, known.used_with_job) == (0.6, 0.25, 0.4)
    assert "recent usage 25.0%, with this job 40.0%" in words.lines(quote(own_share=known))


@pytest.mark.parametrize("output", ["", "root||1|x\nvision||1|2\n"])
def test_an_answer_that_can_not_be_read_gives_no_share(output):
    assert share.parse(output, "vision", 1) is None


@pytest.mark.parametrize(("name", "fix"), [("visoin", "did you mean vision?"), ("x", "vision")])
def test_an_account_that_slurm_does_not_have_is_refused_as_sbatch_refuses_it(name, fix):
    with pytest.raises(UnknownAccount, match=f"invalid account specified: {name}") as refused:
        share.parse(SSHARE, name, 1)
    assert fix in refused.value.next_step


def test_slurm_knows_accounts_in_small_letters():
    assert share.parse(SSHARE, "Vision", 900_000).used == 0.25


def test_a_head_that_does_not_answer_costs_no_quote():
    class Silent:
        def run(self, argv, *, timeout):
            raise HeadCommandFailed("away")

    assert share.fetch(Silent(), "vision", Decimal(1)) is None


def test_json_has_amounts_as_text_and_null_where_nothing_is_known(capsys):
    print_json(words.as_json(quote()))
    answer = json.loads(capsys.readouterr().out)
    assert answer["offers"][0]["usd_per_hour"] == "0.400000"
    assert answer["offers"][0]["usd_usual"] is None
    assert answer["history"]["wait_seconds"] is None
    assert answer["time_limit_seconds"] == 28_800


def test_a_name_can_not_control_the_terminal():
    assert "\x1b" not in words.lines(quote("--job-name=\x1b[2J"))
