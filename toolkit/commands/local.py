"""`toolkit local`: an AWS endpoint with real machines on this computer, and its faults."""

# ruff: noqa: PLR0917 - click passes options by name

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import click

from toolkit.commands.groups import SuggestingGroup
from toolkit.commands.local_instance_events import impair, schedule
from toolkit.commands.local_invoice import invoice
from toolkit.commands.local_options import control_client, print_answer, state_option
from toolkit.commands.local_rights import rights
from toolkit.commands.options import json_option
from toolkit.errors import LocalError
from toolkit.local.options import DEFAULT_PORT, DRIVERS, Options, state_dir

if TYPE_CHECKING:
    from pathlib import Path

    from toolkit.local.client import Client
    from toolkit.output import Reporter


_TITLES = {
    "check": "Check this host",
    "clean": "Clean up",
    "image": "Base image",
    "start": "Start the local cloud",
    "stop": "Stop the local cloud",
}


class _Phases:
    """Turns `report(phase, detail)` into the phases of a reporter."""

    def __init__(self, reporter: Reporter, stack: ExitStack) -> None:
        self._reporter = reporter
        self._outer = stack
        self._title = ""
        self._current: Any = None
        self._inner = ExitStack()
        stack.push(self._exit)

    def __call__(self, phase: str, detail: str) -> None:
        # The phases of the base image's builder are details of ours.
        title = _TITLES.get(phase, _TITLES["image"])
        if title != self._title:
            self._inner.close()
            self._inner = ExitStack()
            self._current = self._inner.enter_context(self._reporter.phase(title))
            self._title = title
        self._current.update(detail if phase in _TITLES else f"{phase}: {detail}")

    def _exit(self, kind: Any, error: Any, trace: Any) -> None:
        self._inner.__exit__(kind, error, trace)


@click.group(cls=SuggestingGroup)
def local() -> None:
    """Run an AWS endpoint with machines on this computer."""


@local.command()
@state_option
@click.option("--port", default=DEFAULT_PORT, show_default=True, help="The port of the endpoint.")
@click.option(
    "--driver",
    type=click.Choice(DRIVERS),
    default=DRIVERS[0],
    show_default=True,
    help="nspawn boots machines; none serves the API alone.",
)
@click.option("--boot-delay", default=0.0, help="Seconds to add from pending to running.")
@click.option("--visible-after", default=0.0, help="Seconds until Describe shows a new instance.")
@click.option("--rates/--no-rates", default=True, help="Apply EC2's request rates.")
@json_option
def up(
    state: Path | None,
    port: int,
    driver: str,
    boot_delay: float,
    visible_after: float,
    rates: bool,
    as_json: bool,
) -> None:
    """Start the local cloud, if it does not run yet."""
    from toolkit.local.lifecycle import up as bring_up
    from toolkit.output import print_json, reporter

    options = Options(
        state=state_dir(state),
        port=port,
        driver=driver,
        boot_delay=boot_delay,
        visible_after=visible_after,
        throttle=rates,
    )
    with ExitStack() as stack:
        running_cloud = bring_up(options, _Phases(reporter(), stack))
    if as_json:
        print_json(running_cloud)
    else:
        verb = "runs" if running_cloud.started else "runs already"
        click.echo(f"the local cloud {verb} at {running_cloud.endpoint} (pid {running_cloud.pid})")
    for limitation in running_cloud.limitations:
        click.echo(f"warning: not as on AWS: {limitation}", err=True)


@local.command()
@state_option
@json_option
def down(state: Path | None, as_json: bool) -> None:
    """Stop the local cloud and every machine of it.

    Images and logs stay.
    """
    from toolkit.local.lifecycle import down as bring_down
    from toolkit.output import print_json, reporter

    with ExitStack() as stack:
        remains = bring_down(state_dir(state), _Phases(reporter(), stack))
    if as_json:
        print_json(remains)
    else:
        click.echo("the local cloud is down")


@local.command()
@state_option
@json_option
def status(state: Path | None, as_json: bool) -> None:
    """Show the instances, the faults in force, and the endpoint."""
    from toolkit.output import print_json, table

    cloud_status = control_client(state).get("status")
    if as_json:
        print_json(cloud_status)
        return
    click.echo(
        f"{cloud_status['endpoint']}  pid {cloud_status['pid']}  driver {cloud_status['driver']}"
    )
    columns = (
        "instance_id",
        "node",
        "name",
        "state",
        "type",
        "zone",
        "market",
        "address",
        "notice",
    )
    live_instances = [
        entry for entry in cloud_status["instances"] if entry["state"] != "terminated"
    ]
    if live_instances:
        rows = [
            ["-" if entry[column] is None else entry[column] for column in columns]
            for entry in live_instances
        ]
        click.echo(table([column.replace("_", " ") for column in columns], rows))
    else:
        click.echo("no instances")
    for limit in cloud_status["limits"]:
        click.echo(f"capacity of {limit['pool']}: {limit['free']} more")
    for entry in cloud_status["injections"]:
        times_left = "always" if entry["count"] is None else f"{entry['count']} more times"
        place = " inside" if entry["inside"] else ""
        click.echo(f"{entry['action']} answers{place} {entry['code']}, {times_left}")


@local.command()
@click.argument("target")
@click.option("--notice", default=120.0, show_default=True, help="Seconds until the interruption.")
@click.option("--rebalance", is_flag=True, help="Send only a rebalance recommendation.")
@state_option
@json_option
def interrupt(
    target: str, notice: float, rebalance: bool, state: Path | None, as_json: bool
) -> None:
    """Give TARGET a spot interruption notice.

    TARGET is a node, an instance id or a Name tag.
    """
    client = control_client(state)
    if rebalance:
        answer = client.post("rebalance", {"target": target})
        text = f"{answer['instance_id']} has a rebalance recommendation"
    else:
        answer = client.post("interrupt", {"target": target, "notice": notice})
        text = f"{answer['instance_id']} will be interrupted at {answer['notice']}"
    print_answer(answer, text, as_json=as_json)


@local.command()
@click.argument("pool", required=False)
@click.option("--free", default=0, show_default=True, help="Instances that POOL still gives.")
@click.option(
    "--seconds", type=float, help="Seconds until the limit ends  [default: --restore ends it]."
)
@click.option("--restore", is_flag=True, help="Lift the limit of POOL, or every limit.")
@state_option
@json_option
def exhaust(
    pool: str | None,
    free: int,
    seconds: float | None,
    restore: bool,
    state: Path | None,
    as_json: bool,
) -> None:
    """Let POOL have no capacity.

    POOL is TYPE[/ZONE[/MARKET]] with * for any, or spot, or on-demand.
    """
    if pool is None and not restore:
        raise click.UsageError("POOL is missing: TYPE[/ZONE[/MARKET]], spot or on-demand")
    request = {"pool": pool, "free": free, "seconds": seconds, "restore": restore}
    answer = control_client(state).post("exhaust", request)
    effect = "has no limit" if restore else f"gives {free} more instances"
    print_answer(answer, f"{answer['pool']} {effect}", as_json=as_json)


@local.command()
@click.argument("action", default="*")
@click.option("--count", type=int, help="Number of calls  [default: until --clear].")
@click.option("--seconds", type=float, help="Seconds until the fault ends.")
@click.option("--code", default="RequestLimitExceeded", show_default=True, help="EC2's error code.")
@click.option("--lost", is_flag=True, help="Carry the call out, and lose its answer.")
@click.option("--inside", is_flag=True, help="Put it into Errors of fleets, for COUNT offerings.")
@click.option("--clear", is_flag=True, help="Answer every call normally again.")
@state_option
@json_option
def throttle(
    action: str,
    count: int | None,
    seconds: float | None,
    code: str,
    lost: bool,
    inside: bool,
    clear: bool,
    state: Path | None,
    as_json: bool,
) -> None:
    """Answer ACTION (RunInstances, Describe*, ...) with an error instead."""
    request: dict[str, Any] = {"clear": True}
    text = "every call is answered normally"
    if lost and inside:
        raise click.UsageError("--lost loses the answer that --inside would put an error into")
    if not clear:
        request = {"action": action, "count": count, "seconds": seconds, "code": code}
        request |= {"lost": lost, "inside": inside}
        text = f"{action} answers {code}"
    print_answer(control_client(state).post("throttle", request), text, as_json=as_json)


@local.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.argument("target")
@click.argument("argv", nargs=-1, type=click.UNPROCESSED)
@click.option("--log", is_flag=True, help="Print the machine's console log instead.")
@state_option
def console(target: str, argv: tuple[str, ...], log: bool, state: Path | None) -> None:
    """Open a root shell in TARGET's machine, or run ARGV in it."""
    from toolkit.local.console import console_log, enter_argv
    from toolkit.local.machines.errors import MachineError
    from toolkit.local.machines.layout import Layout

    layout = Layout(state_dir(state).absolute())
    instance_id = target if target.startswith("i-") else _instance_of(control_client(state), target)
    try:
        if log:
            click.echo(console_log(layout, instance_id), nl=False)
            return
        command = enter_argv(layout, instance_id, argv or ("/bin/bash", "-l"))
    except MachineError as error:
        raise LocalError(str(error)) from error
    os.execvp(command[0], command)  # noqa: S606 - argv only, no shell


@local.command()
@click.argument("target")
@click.argument("port", type=click.IntRange(1, 65_535))
@state_option
def connect(target: str, port: int, state: Path | None) -> None:
    """Join standard input and output with a PORT of TARGET's loopback.

    This is what SSM's port forwarding does on AWS: ssh uses it as ProxyCommand.
    """
    from toolkit.local.console import connect_argv
    from toolkit.local.machines.errors import MachineError
    from toolkit.local.machines.layout import Layout

    layout = Layout(state_dir(state).absolute())
    instance_id = target if target.startswith("i-") else _instance_of(control_client(state), target)
    try:
        command = connect_argv(layout, instance_id, port)
    except MachineError as error:
        raise LocalError(str(error)) from error
    os.execvp(command[0], command)  # noqa: S606 - argv only, no shell


def _instance_of(client: Client, target: str) -> str:
    for instance in client.get("status")["instances"]:
        if target in (instance["node"], instance["name"]) and instance["state"] == "running":
            return str(instance["instance_id"])
    raise LocalError(
        f"no running instance has the node or the Name tag {target}",
        next_step="see the instances with: toolkit local status",
    )


for further in (impair, schedule, rights, invoice):
    local.add_command(further)

command = local
