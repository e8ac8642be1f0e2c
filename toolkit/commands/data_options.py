"""What the `toolkit data` commands share: which store, and how they speak."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from collections.abc import Callable

    from toolkit.datasets.settings import Places
    from toolkit.datasets.store.catalog import Catalog

F = TypeVar("F", bound="Callable[..., Any]")


def store_option(function: F) -> F:
    """Add `--store`, passed on as `store`."""
    return click.option(
        "--store",
        metavar="URL",
        help="A folder or s3://bucket/prefix  [default: $TOOLKIT_DATA_STORE, then the cluster's].",
    )(function)


def places_of(store: str | None) -> Places:
    from dataclasses import replace

    from toolkit.datasets.settings import places

    found = places()
    return replace(found, store=store) if store else found


def catalog_of(store: str | None) -> Catalog:
    from toolkit.datasets.store.catalog import Catalog
    from toolkit.datasets.store.open_store import open_store

    return Catalog(open_store(places_of(store).store_url()))


def say(text: str) -> None:
    click.echo(text, err=True)


def gb(size: int) -> str:
    return f"{size / 1e9:,.3f} GB"
