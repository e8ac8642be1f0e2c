"""Parts that the `toolkit data` commands share: the store option, and their output."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from collections.abc import Callable

    from toolkit.datasets.settings import DatasetSettings
    from toolkit.datasets.store.catalog import Catalog

F = TypeVar("F", bound="Callable[..., Any]")


def store_option(function: F) -> F:
    """Add `--store`, passed on as `store`."""
    return click.option(
        "--store",
        metavar="URL",
        help="A folder or s3://bucket/prefix  [default: $TOOLKIT_DATA_STORE, then the cluster's].",
    )(function)


def places_of(store: str | None) -> DatasetSettings:
    from dataclasses import replace

    from toolkit.datasets.settings import read_settings

    default_places = read_settings()
    return replace(default_places, store=store) if store else default_places


def open_catalog(store: str | None) -> Catalog:
    from toolkit.datasets.store.catalog import Catalog
    from toolkit.datasets.store.open_store import open_store

    return Catalog(open_store(places_of(store).store_url()))


def echo_stderr(text: str) -> None:
    click.echo(text, err=True)


def gb(size: int) -> str:
    return f"{size / 1e9:,.3f} GB"
