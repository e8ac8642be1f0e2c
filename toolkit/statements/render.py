"""A statement as a self-contained HTML page, and as a mail. Pure but for the template's file."""

from __future__ import annotations

import textwrap
from email.message import EmailMessage
from email.policy import SMTP
from typing import TYPE_CHECKING, Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from toolkit import assets
from toolkit.accounting.phrases import day, moment, sources_text
from toolkit.output import plain
from toolkit.statements.cents import usd_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from decimal import Decimal

    from toolkit.statements.model import Issue, Line, RateLine, Statement

_WIDTH: Final = 72
_AMOUNT: Final = 16
_PLACES: Final = 2
_MOST_NAMES: Final = 20
"""Users and projects that a statement lists; the rest is one line."""


def html(statement: Statement) -> str:
    """Return the page; every name in it is escaped."""
    environment = Environment(
        loader=FileSystemLoader(assets.directory("templates") / "statements"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.get_template("statement.html.j2").render(context(statement))


def context(statement: Statement) -> dict[str, Any]:
    """Return the template's values: text alone."""
    account, issue = statement.account, statement.issue
    return {
        "title": title(statement),
        "issuer": issue.issuer,
        "facts": list(facts(statement)),
        "due": usd_text(statement.due),
        "due_lines": _rows(statement.due_lines),
        "cost_lines": _rows(statement.cost_lines),
        "cost": usd_text(statement.cost),
        "rate_lines": [_rate_row(line) for line in statement.rate_lines],
        "rated": "" if statement.rated is None else usd_text(statement.rated),
        "rates_as_of": issue.rates_as_of,
        "projects": _rows(shortened(statement.projects)),
        "users": _rows(shortened(statement.users)),
        "below": _rows(statement.below),
        "total": usd_text(statement.total),
        "account": account.name,
        "warnings": list(warnings(statement)),
        "prices": prices_line(statement),
        "state": state_text(issue),
    }


def text(statement: Statement) -> str:
    """Return the statement as plain text of 72 columns."""
    issue = statement.issue
    parts = [
        title(statement),
        "",
        *(f"{name + ':':<14}{value}" for name, value in facts(statement)),
        "",
        *_text_table("Due", statement.due_lines, statement.due),
        *_text_table("Actual cost", statement.cost_lines, statement.cost),
        *_rate_table(statement),
        *_text_table("Actual cost by project", shortened(statement.projects), None),
        *_text_table("Actual cost by user", shortened(statement.users), None),
    ]
    if statement.below:
        own = f"{statement.account.name} itself"
        lines = [*((line.text, line.cents) for line in statement.below), (own, statement.due)]
        parts += _text_rows("With the accounts below", lines, statement.total)
    if statement.prices:
        parts += [*textwrap.wrap(prices_line(statement), _WIDTH), ""]
    for line in warnings(statement):
        parts += [*textwrap.wrap(f"Note: {plain(line)}", _WIDTH), ""]
    parts += textwrap.wrap(state_text(issue), _WIDTH)
    return "".join(f"{plain(part).rstrip()}\n" for part in parts)


def mail(statement: Statement) -> bytes:
    """Return the statement as a mail that `sendmail -t` takes."""
    issue = statement.issue
    message = EmailMessage(policy=SMTP)
    subject = f"{title(statement)}: {usd_text(statement.due)} USD"
    message["Subject"] = " ".join(plain(subject).split())
    if issue.sender:
        message["From"] = issue.sender
    if statement.account.owner:
        message["To"] = statement.account.owner
    message.set_content(text(statement), cte="quoted-printable")
    return message.as_bytes()


def title(statement: Statement) -> str:
    """Return the heading."""
    issue = statement.issue
    return f"Statement {issue.period}, account {statement.account.name}, cluster {issue.cluster}"


def facts(statement: Statement) -> Iterable[tuple[str, str]]:
    """Yield what is known of the account, each with its name."""
    account, issue = statement.account, statement.issue
    grant = account.grant
    yield "Period", f"{issue.first} to {issue.last} (UTC)"
    yield "Account", account.name
    values = {
        "Part of": account.parent if account.parent != "root" else "",
        "Owner": account.owner,
        "Cost centre": account.cost_centre,
        "Grant": f"{grant.name}, {grant.since} to {grant.until}" if grant else "",
        "Issued by": issue.issuer,
    }
    for name, value in values.items():
        if value:
            yield name, value


def state_text(issue: Issue) -> str:
    """Return the sentence on the period's state."""
    if issue.closed_at is None:
        days = f"with the days up to {issue.known_to}"
        return f"PRELIMINARY, {days}: the period is not closed. Amounts are US dollars."
    revision = (
        f" Revision {issue.revision} replaces the earlier ones." if issue.revision > 1 else ""
    )
    return f"Closed on {moment(issue.closed_at)} UTC. Amounts are US dollars.{revision}"


def prices_line(statement: Statement) -> str:
    """Return the sentence on the sources and age of prices, or ""."""
    prices = statement.prices
    if prices is None:
        return ""
    sources, oldest = sources_text(prices.sources), day(prices.as_of)
    return f"Prices of the actual cost: {sources}, the oldest of {oldest}."


def warnings(statement: Statement) -> Iterable[str]:
    """Yield what the owner should know of the amounts."""
    yield from statement.notes
    if statement.unknown:
        names = ", ".join(statement.unknown[:3])
        more = len(statement.unknown) - 3
        rest = f" and {more} more" if more > 0 else ""
        yield f"The cost of {names}{rest} is unknown and in no sum."


def shortened(lines: Sequence[Line]) -> Sequence[Line]:
    """Return the first lines, and one for the rest; the sum stays."""
    from toolkit.statements.model import Line

    if len(lines) <= _MOST_NAMES:
        return lines
    rest = lines[_MOST_NAMES - 1 :]
    other = Line(f"({len(rest)} more)", sum(line.cents for line in rest))
    return (*lines[: _MOST_NAMES - 1], other)


def _rows(lines: Iterable[Line]) -> list[tuple[str, str]]:
    return [(line.text, usd_text(line.cents)) for line in lines]


def _rate_row(line: RateLine) -> tuple[str, str, str, str]:
    rate = "at cost" if line.usd_per_hour is None else _rate_text(line.usd_per_hour)
    return line.instance_type, _hours_text(line), rate, usd_text(line.cents)


def _hours_text(line: RateLine) -> str:
    """Return the hours with two places, or with four for small amounts."""
    rounded = round(line.node_hours, _PLACES)
    amount = line.cents if line.usd_per_hour is None else round(rounded * line.usd_per_hour * 100)
    places = _PLACES if amount == line.cents else 2 * _PLACES
    return f"{line.node_hours:,.{places}f}"


def _rate_text(usd: Decimal) -> str:
    """Return a rate with two places, or more if it has more."""
    text = f"{usd.normalize():f}"
    return text if len(text.partition(".")[2]) > _PLACES else f"{usd:.{_PLACES}f}"


def _text_table(heading: str, lines: Sequence[Line], total: int | None) -> list[str]:
    return _text_rows(heading, [(line.text, line.cents) for line in lines], total)


def _text_rows(heading: str, lines: Sequence[tuple[str, int]], total: int | None) -> list[str]:
    if not lines and total is None:
        return []
    rows = [f"{heading:<{_WIDTH - 3}}USD", "-" * _WIDTH]
    rows += [_row(name, amount) for name, amount in lines]
    if total is not None:
        rows += ["-" * _WIDTH, _row("Total", total)]
    return [*rows, ""]


def _row(name: str, amount: int) -> str:
    room = _WIDTH - _AMOUNT
    name = plain(name)
    shown = name if len(name) <= room else f"{name[: room - 3]}..."
    return f"{shown:<{room}}{usd_text(amount):>{_AMOUNT}}"


def _rate_table(statement: Statement) -> list[str]:
    if statement.rated is None:
        return []
    heading = f"At the rate card of {statement.issue.rates_as_of}"
    rows = [f"{heading:<{_WIDTH - 3}}USD", "-" * _WIDTH]
    for line in statement.rate_lines:
        name, hours, rate, amount = _rate_row(line)
        what = f"{name}: {hours} node-hours" + (", at cost" if rate == "at cost" else f" at {rate}")
        rows.append(f"{what:<{_WIDTH - _AMOUNT}}{amount:>{_AMOUNT}}")
    return [*rows, "-" * _WIDTH, _row("Total", statement.rated), ""]
