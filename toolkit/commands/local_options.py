"""Parts that `toolkit local`'s commands share: the state option, the daemon's control API."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from toolkit.errors import LocalError
from toolkit.local.options import state_dir

if TYPE_CHECKING:
    from collections.abc import Callable

    from toolkit.local.client import Client


def state_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--state`, passed on as `state`."""
    return click.option(
        "--state",
        type=click.Path(file_okay=False, path_type=Path),
        help="State directory  [default: $TOOLKIT_LOCAL_DIR, then /var/lib/toolkit-local].",
    )(function)


def control_client(state: Path | None) -> Client:
    """Return a client of the daemon that holds the state directory."""
    from toolkit.local.client import Client
    from toolkit.local.daemon_files import StateFiles

    state_directory = state_dir(state)
    daemon = StateFiles(state_directory).running()
    if daemon is None:
        raise LocalError(
            f"no local cloud runs in {state_directory}", next_step="start it with: toolkit local up"
        )
    return Client(daemon.options.port)


def print_answer(answer: dict[str, Any], text: str, *, as_json: bool) -> None:
    """Print an answer as JSON, or as text."""
    from toolkit.output import print_json

    if as_json:
        print_json(answer)
    else:
        click.echo(text)
