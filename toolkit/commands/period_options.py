"""Options of commands that work on periods, and the periods of a cluster."""

from __future__ import annotations

import getpass
import os
import socket
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from collections.abc import Callable

    from toolkit.accounting.periods import Period
    from toolkit.bill.history import History
    from toolkit.config import ClusterConfig
    from toolkit.statements.cluster_periods import ClusterPeriods

F = TypeVar("F", bound="Callable[..., Any]")


def names_option(default: str | None) -> Callable[[F], F]:
    """Add `--names`, passed on as `names`."""
    return click.option(
        "--names",
        type=click.Choice(["none", "own", "all"]),
        default=default,
        help="The users to name: nobody, one's own, everybody  [default:"
        f" {default or 'statements.names of cluster.yaml'}].",
    )


def month_argument(function: F) -> F:
    """Add the argument MONTH, passed on as `text`."""
    return click.argument("text", metavar="MONTH")(function)


def reason_option(function: F) -> F:
    """Add `--reason`, passed on as `reason`."""
    return click.option(
        "--reason", required=True, callback=_reason, help="Why; the log of periods keeps it."
    )(function)


def _reason(_ctx: click.Context, _param: click.Parameter, text: str) -> str:
    if not text.strip():
        raise click.BadParameter("expected some words")
    return " ".join(text.split())


def month_of(text: str, now: datetime) -> Period:
    """Return the month that a person named. Raises PeriodInvalid."""
    from toolkit.accounting import periods
    from toolkit.accounting.errors import PeriodInvalid

    period = periods.parse(text, now.date())
    if not period.is_month:
        raise PeriodInvalid(
            f"{text} is no month: accounting periods are months",
            next_step=f"write {period.first:%Y-%m}",
        )
    return periods.month_of(period.first)


def periods_of(
    config: ClusterConfig, now: datetime, bills: History | None = None
) -> ClusterPeriods:
    """Return the periods of a cluster. Raises OtherCluster and BillError.

    The record of bills is read, unless its content is given.
    """
    from toolkit.accounting.settings import cost_policy
    from toolkit.bill import record
    from toolkit.bill.history import history
    from toolkit.commands.own_store import own_store, warn_of_unknown_account
    from toolkit.statements.cluster_periods import ClusterPeriods
    from toolkit.statements.settings import settings_of

    store = own_store(config)
    warn_of_unknown_account(store, config)
    if bills is None:
        path = record.record_path(record.default_folder(), config.cluster)
        bills = history(record.read_entries(path))
    return ClusterPeriods(
        store=store,
        settings=settings_of(config),
        policy=cost_policy(config),
        bills=bills,
        now=int(now.timestamp()),
        who=who(),
    )


def utc_now() -> datetime:
    """Return the present time."""
    return datetime.now(UTC)


def own_user() -> str:
    """Return the name of the user who runs the command."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # an account without a name, as in a container
        return str(os.getuid())


def who() -> str:
    """Return who runs the command and where, for the log."""
    user = own_user()
    by = os.environ.get("SUDO_USER", "")
    name = f"{by} as {user}" if by and by != user else user
    return f"{name}@{socket.gethostname()}"
