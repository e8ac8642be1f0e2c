"""`toolkit join check`: what of a site can't work with our nodes, each with its mend."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from toolkit.commands.options import config_option, find_config_file, json_option, load_join
from toolkit.errors import HeadCommandFailed

if TYPE_CHECKING:
    from pathlib import Path

    from toolkit.config import ClusterConfig
    from toolkit.join.preflight import Measurements, SiteCheck

NOT_READY = 1


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
def check_command(
    *, config_path: Path | None, as_json: bool, probes: tuple[str, ...], instance: str | None
) -> int:
    """Ask the site what can't work with the cloud nodes; change nothing.

    It reads slurm.conf, and asks slurmctld and the controller's system. Each finding has its mend.
    Exit code 0: ready, or warnings only; 1: an error.
    """
    from toolkit.output import plain, print_json

    config = load_join(find_config_file(config_path))
    result = _check(config, _measurements(probes, instance))
    if as_json:
        print_json(result.to_json())
    else:
        for finding in result.findings:
            click.echo(plain(str(finding)))
        for item in result.unanswered:
            click.echo(plain(f"note: no answer: {item.question}: {item.reason}"))
        click.echo(plain(result.sentence))
    return 0 if result.ready else NOT_READY


def _measurements(probes: tuple[str, ...], instance: str | None) -> Measurements:
    """Return the measurements.

    Raises UsageError for a word that is no host and port.
    """
    from toolkit.join.preflight import Measurements
    from toolkit.join.preflight.connections import Target
    from toolkit.join.runner import ControllerRunner

    try:
        targets = tuple(Target.parse(text) for text in probes)
    except ValueError as error:
        raise click.UsageError(f"--probe: {error}") from error
    if instance is None:
        return Measurements(targets)
    if instance.startswith("-"):
        raise click.UsageError("--from: expected a host")
    ssh = ("ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "--", "{host}")
    return Measurements(targets, ControllerRunner(instance, ssh))


def _check(config: ClusterConfig, measurements: Measurements) -> SiteCheck:
    """Ask the first controller that answers. Raises ToolkitError if none does."""
    from toolkit.join.file_edits import without_ours
    from toolkit.join.preflight import check_site, cloud_side
    from toolkit.join.runner import controllers
    from toolkit.join.site import read_site
    from toolkit.output import reporter

    place = config.joined_site
    failure: HeadCommandFailed | None = None
    for runner in controllers(place):
        try:
            whole = read_site(runner, place.slurm_conf, slurm_bin=place.slurm_bin)
        except HeadCommandFailed as error:
            failure = failure or error
            continue
        site = without_ours(config, whole)
        return check_site(
            runner,
            site,
            cloud_side(config),
            reporter(),
            measurements,
            slurm_bin=place.slurm_bin,
            joined=site != whole,
        )
    raise failure or HeadCommandFailed("cluster.yaml names no controller")
