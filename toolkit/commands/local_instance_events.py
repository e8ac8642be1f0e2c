"""`toolkit local impair` and `schedule`: failing status checks, and scheduled events."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from toolkit.commands.local_options import control_client, print_answer, state_option
from toolkit.commands.options import json_option

if TYPE_CHECKING:
    from pathlib import Path

EVENTS = (
    "instance-reboot",
    "instance-retirement",
    "instance-stop",
    "system-maintenance",
    "system-reboot",
)


@click.command()
@click.argument("target")
@click.option("--ago", default=0.0, help="Seconds for which the check has failed already.")
@click.option("--restore", is_flag=True, help="Let the check pass again.")
@state_option
@json_option
def impair(target: str, *, ago: float, restore: bool, state: Path | None, as_json: bool) -> None:
    """Let EC2's status check of TARGET fail.

    TARGET is a node, an instance id or a Name tag.
    """
    answer = control_client(state).post(
        "impair", {"target": target, "ago": ago, "restore": restore}
    )
    effect = "passes its status checks" if restore else "fails its status check"
    print_answer(answer, f"{answer['instance_id']} {effect}", as_json=as_json)


@click.command()
@click.argument("target")
@click.option(
    "--event",
    type=click.Choice(EVENTS),
    default=EVENTS[1],
    show_default=True,
    help="EC2's code of the event.",
)
@click.option(
    "--in", "seconds", default=7 * 86_400.0, help="Seconds until the event  [default: a week]"
)
@click.option("--cancel", is_flag=True, help="Cancel every event of TARGET.")
@state_option
@json_option
def schedule(
    target: str, *, event: str, seconds: float, cancel: bool, state: Path | None, as_json: bool
) -> None:
    """Announce a scheduled event for TARGET's instance.

    The local cloud only announces it: the instance is not stopped.
    """
    request = {"target": target, "event": event, "seconds": seconds, "cancel": cancel}
    answer = control_client(state).post("schedule", request)
    effect = "has no event scheduled" if cancel else f"is scheduled for {event}"
    print_answer(answer, f"{answer['instance_id']} {effect}", as_json=as_json)
