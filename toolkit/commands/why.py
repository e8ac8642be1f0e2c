"""`toolkit why`: the reason that a job waits or failed, and the state of a node."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import click

from toolkit.commands.options import config_option, json_option, load_any

if TYPE_CHECKING:
    from pathlib import Path

    from slurmplugins.model.node import JobId
    from toolkit.explain.answer import Answer

CONSOLE_SHOWN = 12


@click.command("why")
@config_option
@json_option
@click.option("--log", is_flag=True, help="Print every decision about the job or node as well.")
@click.argument("target", metavar="JOB|NODE")
def command(*, config_path: Path | None, as_json: bool, log: bool, target: str) -> None:
    """Explain why a job waits or failed, or a node's state.

    The answer has the offerings that were tried, EC2's answers, and the time of the next try.
    """
    from toolkit.commands.controller import controller, head_programs
    from toolkit.deploy.session import connected
    from toolkit.explain import head_facts, job, node
    from toolkit.output import print_json

    name = _job(target)
    config = load_any(config_path)
    with connected(config) as clients:
        question = ("node", target) if name is None else ("job", str(name))
        head_report = head_facts.fetch_report(
            controller(clients, config), *question, programs=head_programs(config)
        )
    if name is None:
        answer = node.explain(head_report, target)
    else:
        answer = job.explain(head_report, name.number, name.task)
    if as_json:
        print_json(answer)
    else:
        _print(answer, log=log)


def _job(target: str) -> JobId | None:
    """Parse a job id; None for a node's name.

    `4711` is a job, `4711_3` an array task. `4711.batch` is its job, and squeue's `4711_[4-9]` its
    array.
    """
    from slurmplugins.errors import BadName
    from slurmplugins.model import hostlist
    from slurmplugins.model.node import parse_job_id

    with suppress(BadName):
        return parse_job_id(target.partition(".")[0].partition("_[")[0])
    try:
        hostlist.parse(target)
    except BadName as error:
        raise click.UsageError(f"{target!r} is neither a job id nor a node's name") from error
    return None


def _print(answer: Answer, *, log: bool) -> None:
    from toolkit.explain.answer import format_time
    from toolkit.output import plain, table

    click.echo(plain(f"{answer.subject}: {answer.verdict}"))
    for line in answer.because:
        click.echo(plain(f"  {line}"))
    if answer.tried:
        rows = [
            (format_time(item.at), item.offering, item.outcome, item.said) for item in answer.tried
        ]
        click.echo("\n" + table(("TRIED", "OFFERING", "OUTCOME", "EC2 SAID"), rows))
    if answer.console:
        click.echo("\nthe end of the console of the instance that did not come up:")
        for line in answer.console[-CONSOLE_SHOWN:]:
            click.echo(plain(f"  | {line}"))
    if log and answer.decisions:
        click.echo("\ndecisions:")
        for line in answer.decisions:
            click.echo(plain(f"  {line}"))
    if answer.next:
        click.echo(plain(f"\nnext: {answer.next}"))
    for line in answer.unread:
        click.echo(plain(f"could not be read: {line}"), err=True)
