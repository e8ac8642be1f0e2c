"""`toolkit join check`: what of a site can't work with our nodes, each with its mend."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from toolkit.commands.options import config_option, find_config_file, json_option, load_join

if TYPE_CHECKING:
    from pathlib import Path

    from toolkit.config import ClusterConfig
    from toolkit.join.preflight import Measurements, SiteCheck
    from toolkit.join.runner import ControllerRunner

NOT_READY = 1
SSH = ("ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "--", "{host}")


@click.command("check")
@config_option
@json_option
@click.option(
    "--probe",
    "probes",
    metavar="HOST:PORT",
    multiple=True,
    help="A host in the subnets: connect from the site. It may be repeated.",
)
@click.option(
    "--from",
    "instance",
    metavar="HOST",
    help="An instance in the subnets, as ssh takes it: connect from there to the site.",
)
@click.option(
    "--rack",
    "racks",
    metavar="HOST",
    multiple=True,
    help="A rack, as ssh takes it: ask it what job scripts need. It may be repeated.",
)
def check_command(
    *,
    config_path: Path | None,
    as_json: bool,
    probes: tuple[str, ...],
    instance: str | None,
    racks: tuple[str, ...],
) -> int:
    """Ask the site what can't work with the cloud nodes; change nothing.

    It reads slurm.conf, and asks slurmctld and the controller's system. Each finding has its mend.
    Exit code 0: ready, or warnings only; 1: an error.
    """
    from toolkit.output import plain, print_json

    config = load_join(find_config_file(config_path))
    result = _check(config, _measurements(probes, instance, racks))
    if as_json:
        print_json(result.to_json())
    else:
        for finding in result.findings:
            click.echo(plain(str(finding)))
        for item in result.unanswered:
            click.echo(plain(f"note: no answer: {item.question}: {item.reason}"))
        click.echo(plain(result.sentence))
    return 0 if result.ready else NOT_READY


def _measurements(
    probes: tuple[str, ...], instance: str | None, racks: tuple[str, ...]
) -> Measurements:
    """Return the measurements.

    Raises UsageError for a word that is no host and port.
    """
    from toolkit.join.preflight import Measurements
    from toolkit.join.preflight.connections import Target

    try:
        targets = tuple(Target.parse(text) for text in probes)
    except ValueError as error:
        raise click.UsageError(f"--probe: {error}") from error
    return Measurements(
        targets,
        None if instance is None else _by_ssh("--from", instance),
        tuple(_by_ssh("--rack", host) for host in racks),
    )


def _by_ssh(option: str, host: str) -> ControllerRunner:
    """Return a runner of commands on a host.

    Raises UsageError for a word that is no host.
    """
    from toolkit.join.runner import ControllerRunner

    if host.startswith("-"):
        raise click.UsageError(f"{option}: expected a host")
    return ControllerRunner(host, SSH)


def _check(config: ClusterConfig, measurements: Measurements) -> SiteCheck:
    """Ask the first controller that answers. Raises ToolkitError if none does."""
    from toolkit.join import readiness
    from toolkit.join.runner import controllers
    from toolkit.output import reporter

    runner, site = readiness.read_first(config, controllers(config.joined_site))
    return readiness.ask(config, runner, site, reporter(), measurements)
