"""`toolkit quote`: a job's price on each offering, before it is submitted."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from toolkit.commands.options import config_option, find_config_file, json_option, load
from toolkit.commands.submit import split_words

if TYPE_CHECKING:
    from pathlib import Path

    from toolkit.config import ClusterConfig
    from toolkit.quote.quote import Quote
    from toolkit.quote.request import JobRequest


@click.command(
    "quote",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@config_option
@json_option
@click.argument(
    "words", metavar="[SBATCH-OPTION=VALUE...] SCRIPT [ARG...]", nargs=-1, required=True
)
def command(*, config_path: Path | None, as_json: bool, words: tuple[str, ...]) -> None:
    """Say what a job would cost on each offering.

    The script is read as sbatch reads it; options before it win. Prices are of this moment. Waits,
    interruptions and run times come from the records of the last 30 days. Nothing is submitted.
    """
    from toolkit.output import print_json
    from toolkit.quote import words as quote_words

    options, script, _ = split_words(words)
    config = load(config_path)
    request = read(script, options)
    quote = quote_of(request, config, find_config_file(config_path))
    if as_json:
        print_json(quote_words.as_json(quote))
    else:
        click.echo(quote_words.lines(quote))


def read(script: str, options: tuple[str, ...]) -> JobRequest:
    """Return what a script on this computer requests. Raises QuoteError."""
    from pathlib import Path

    from toolkit.quote.errors import BadRequest
    from toolkit.quote.request import read_request

    try:
        text = Path(script).read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise BadRequest(f"sbatch: unable to open file {script}: {error.strerror}") from error
    return read_request(text, script, options, os.environ)


def quote_of(request: JobRequest, config: ClusterConfig, config_file: Path) -> Quote:
    """Ask AWS and the head, and return the quote. Raises QuoteError."""
    from toolkit.deploy.head import Head
    from toolkit.deploy.session import connected
    from toolkit.quote import budget_effect, facts, offers, share
    from toolkit.quote.history import history
    from toolkit.quote.quote import Quote, subject

    request = offers.resolved(request, config)
    now = int(time.time())
    with connected(config) as clients:
        cluster_facts = facts.read(config, config_file, clients, now)
        job_offers = offers.offers(request, offers.Market(config, cluster_facts.book, now))
        quote = Quote(
            at=now,
            request=request,
            offers=job_offers,
            history=history(
                subject(request, job_offers),
                cluster_facts.attempts,
                cluster_facts.instances,
                cluster_facts.window,
            ),
            suspend_seconds=config.slurm.suspend_time,
        )
        head = Head(clients, config)
        own_share = share.fetch(head, request.account, quote.usd_limit)
        price = quote.price(quote.first) if quote.first.known else None
        budgets = budget_effect.fetch(head, config, request, price)
    return replace(quote, share=own_share, budgets=budgets)
