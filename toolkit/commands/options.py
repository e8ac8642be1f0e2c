"""Options that several commands share, so that they read the same everywhere."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from toolkit.errors import ConfigNotFound, WrongKind

if TYPE_CHECKING:
    from collections.abc import Callable

    from toolkit.config import ClusterConfig

F = TypeVar("F", bound="Callable[..., Any]")

CONFIG_VARIABLE = "TOOLKIT_CONFIG"
DEFAULT_CONFIG = Path("cluster.yaml")


def config_option(function: F) -> F:
    """Add `--config`, passed on as `config_path`."""
    return click.option(
        "--config",
        "-c",
        "config_path",
        type=click.Path(dir_okay=False, path_type=Path),
        help=f"The cluster's file  [default: ${CONFIG_VARIABLE}, then ./{DEFAULT_CONFIG}].",
    )(function)


def json_option(function: F) -> F:
    """Add `--json`, passed on as `as_json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(function)


def check_format(*, as_json: bool, as_csv: bool) -> None:
    """Raise UsageError if both formats are asked for."""
    if as_json and as_csv:
        raise click.UsageError("--json and --csv exclude each other")


def yes_option(function: F) -> F:
    """Add `--yes`, passed on as `yes`."""
    return click.option("--yes", "-y", is_flag=True, help="Confirm deletions and replacements.")(
        function
    )


def dry_run_option(function: F) -> F:
    """Add `--dry-run`, passed on as `dry_run`."""
    return click.option("--dry-run", is_flag=True, help="Show the changes; make none.")(function)


def find_config_file(config_path: Path | None) -> Path:
    """Return the file to read: the option's, the environment's, or ./cluster.yaml.

    Raises ConfigNotFound.
    """
    path = config_file(config_path)
    if path == DEFAULT_CONFIG and not path.exists():
        raise ConfigNotFound(
            "no cluster.yaml here",
            next_step=f"give --config FILE, set {CONFIG_VARIABLE}, or `toolkit config init`",
        )
    return path


def config_file(config_path: Path | None) -> Path:
    """Return the path of the file, also if it does not exist."""
    return config_path or Path(os.environ.get(CONFIG_VARIABLE) or DEFAULT_CONFIG)


def load(config_path: Path | None) -> ClusterConfig:
    """Return the checked configuration of a cluster with a head.

    Raises ConfigNotFound, ConfigInvalid, or WrongKind for a join.
    """
    config = load_any(config_path)
    if config.site is not None:
        raise WrongKind(
            f"{config.cluster} is a join: the site has its own head and users",
            next_step="`toolkit join` adds and removes its nodes; status, nodes, jobs, why,"
            " report, burst and reconcile read them",
        )
    return config


def load_any(config_path: Path | None) -> ClusterConfig:
    """Return the checked configuration, of a cluster or a join.

    Raises ConfigNotFound or ConfigInvalid.
    """
    from toolkit.config import load as load_config

    return load_config(find_config_file(config_path))


def load_join(config_path: Path | None) -> ClusterConfig:
    """Return the checked configuration of a join. Raises WrongKind for a cluster."""
    config = load_any(config_path)
    if config.site is None:
        raise WrongKind(
            f"{config.cluster} is no join: cluster.yaml has no `kind: join`",
            next_step="`toolkit deploy` makes a cluster of your own",
        )
    return config


def skip_preflight_option(function: F) -> F:
    """Add `--skip-preflight`, passed on as `skip_preflight`."""
    return click.option(
        "--skip-preflight", is_flag=True, help="Don't ask AWS first whether the account fits."
    )(function)
