"""The options that commands on the store of usage share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from toolkit.usage.report import UsageKey
    from toolkit.usage.store import Store


def store_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--store`, the folder of the store."""
    return click.option(
        "--store",
        "store_path",
        type=click.Path(file_okay=False, path_type=Path),
        help="The store's folder  [default: $TOOLKIT_USAGE_STORE, then your data folder].",
    )(function)


def store_of(store_path: Path | None) -> Store:
    """Return the store of the option."""
    from toolkit.usage.store import Store, default_folder

    return Store(store_path or default_folder())


def keys_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--by`, the groups of a cost."""
    return click.option(
        "--by",
        "keys",
        callback=_keys,
        default="account",
        show_default=True,
        metavar="KEYS",
        help="account, user, job, partition, qos, cluster, or a list of these.",
    )(function)


def report_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the groups and the prices of a report of attempts."""
    for option in (
        click.option(
            "--prices",
            "prices_path",
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            help="A file with node types and prices; docs/usage.md has its form.",
        ),
        click.option(
            "--rate",
            "rate_options",
            multiple=True,
            metavar="NAME=USD",
            help="Price of a node-hour, of a partition or a node type. May be repeated.",
        ),
        click.option(
            "--by",
            "keys",
            callback=_keys_of_attempts,
            default="account",
            show_default=True,
            metavar="KEYS",
            help="account, user, job, partition, qos, node-type, cluster, or a list of these.",
        ),
    ):
        function = option(function)
    return function


def _keys_of_attempts(
    _ctx: click.Context, _param: click.Parameter, text: str
) -> tuple[UsageKey, ...]:
    from toolkit.usage.report import UsageKey

    return _parsed_keys(text, tuple(UsageKey))


def _keys(_ctx: click.Context, _param: click.Parameter, text: str) -> tuple[UsageKey, ...]:
    from toolkit.usage.instance_costs import KEYS

    return _parsed_keys(text, KEYS)


def _parsed_keys(text: str, known: Sequence[UsageKey]) -> tuple[UsageKey, ...]:
    """Parse names of groups, separated by commas."""
    by_name = {key.value: key for key in known}
    try:
        return tuple(dict.fromkeys(by_name[part.strip()] for part in text.split(",")))
    except KeyError as error:
        raise click.BadParameter(f"{text!r}: give some of {', '.join(known)}") from error
