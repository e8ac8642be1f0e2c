"""`toolkit config`: write a first cluster.yaml, check it and slurm.conf, print its schema."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from toolkit.commands.groups import SuggestingGroup
from toolkit.commands.options import (
    config_file,
    config_option,
    dry_run_option,
    find_config_file,
    json_option,
    load_any,
)
from toolkit.errors import ConfigError, ConfigExists, ConfigInvalid

if TYPE_CHECKING:
    from toolkit.config import ClusterConfig
    from toolkit.lint.slurm_conf.rule import SettingFinding

INVALID = 2


@click.group("config", cls=SuggestingGroup)
def command() -> None:
    """Write a first cluster.yaml, check it and slurm.conf, print its schema."""


@command.command("init")
@click.argument("kind", type=click.Choice(["local", "aws", "join"]), default="local")
@config_option
@dry_run_option
@click.option("--force", is_flag=True, help="Write over an existing file.")
def init(*, kind: str, config_path: Path | None, dry_run: bool, force: bool) -> None:
    """Write a commented cluster.yaml for this computer, AWS, or a site.

    `join` is for nodes in AWS that a site's own Slurm gets. --dry-run prints the file. Without
    --force an existing file stays as it is (exit code 2).
    """
    from toolkit import assets

    text = (assets.directory("examples") / f"{kind}.yaml").read_text()
    if dry_run:
        click.echo(text, nl=False)
        return
    path = config_file(config_path)
    try:
        with path.open("w" if force else "x") as stream:
            stream.write(text)
    except FileExistsError:
        raise ConfigExists(
            f"{path} exists already", next_step="--force writes over it; --dry-run prints"
        ) from None
    except OSError as error:
        raise ConfigError(f"{path} can't be written: {error.strerror}") from error
    click.echo(f"{path}: edit it, then `toolkit config check`")


@command.command("check")
@config_option
@json_option
@click.option(
    "--slurm-conf",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Check this file's settings  [default: cluster.yaml's slurm.conf].",
)
@click.option("--slurm-version", metavar="YY.MM", help="For this Slurm  [default: cluster.yaml's].")
def check(
    *, config_path: Path | None, as_json: bool, slurm_conf: Path | None, slurm_version: str | None
) -> int:
    """Report every problem in cluster.yaml, and every known trap in its slurm.conf.

    --slurm-conf and --slurm-version together need no cluster.yaml. A join has no slurm.conf of its
    own: `toolkit join plan` looks at the site's. Exit code 0: good, or warnings
    only; 2: cluster.yaml is invalid, or a setting loses jobs, nodes or money.
    """
    from toolkit.lint.finding import Severity
    from toolkit.output import print_json

    if slurm_conf is not None and slurm_version is not None:
        findings = _lint(slurm_conf.read_text(errors="replace"), slurm_version)
        subject = str(slurm_conf)
    else:
        path = find_config_file(config_path)
        try:
            config = load_any(path)
        except ConfigInvalid as error:
            if not as_json:
                raise
            print_json({"valid": False, "problems": error.problems, "findings": []})
            return error.exit_code
        findings = _findings(config, slurm_conf, slurm_version)
        nodes = sum(pool.count for pool in config.pools.values())
        kind = "cluster" if config.site is None else "join"
        subject = f"{path}: {kind} {config.cluster}, up to {nodes} nodes"
    failed = any(item.severity is Severity.ERROR for item in findings)
    if as_json:
        print_json({"valid": not failed, "problems": [], "findings": findings})
    else:
        _print(subject, findings, failed=failed)
    return INVALID if failed else 0


def _findings(
    config: ClusterConfig, slurm_conf: Path | None, slurm_version: str | None
) -> tuple[SettingFinding, ...]:
    """Return the traps in a cluster's slurm.conf, or in a given one."""
    if config.site is not None:
        if slurm_conf is not None or slurm_version is not None:
            raise click.UsageError(
                "a join's slurm.conf is the site's: give --slurm-conf with --slurm-version"
            )
        return ()
    text = _rendered(config) if slurm_conf is None else slurm_conf.read_text(errors="replace")
    return _lint(text, slurm_version or config.slurm.version)


def _rendered(config: ClusterConfig) -> str:
    """Return the slurm.conf of this cluster.yaml.

    Prices only rank nodes, so none are read.
    """
    from toolkit import assets
    from toolkit.render.context import slurm_context
    from toolkit.render.prices import PriceTable
    from toolkit.render.slurm import slurm_files

    context = slurm_context(config, PriceTable({}))
    return slurm_files(context, assets.directory("templates"))["slurm.conf"]


def _lint(text: str, version: str) -> tuple[SettingFinding, ...]:
    from toolkit.lint.slurm_conf import check as slurm_conf_check, parser
    from toolkit.render import options
    from toolkit.render.versions import SlurmVersion

    try:
        series = SlurmVersion.parse(version)
        options.check_range(series)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    return slurm_conf_check.check_slurm_conf(parser.parse(text), series)


def _print(subject: str, findings: tuple[SettingFinding, ...], *, failed: bool) -> None:
    from toolkit.output import plain

    for item in findings:
        location = f"line {item.line}: " if item.line else ""
        click.echo(
            plain(f"{item.severity}: {location}{item.setting}: {item.message} [{item.slug}]")
        )
        click.echo(plain(f"  fix: {item.fix}"))
        click.echo(f"  see: {item.source}")
    click.echo(plain(f"{subject}: {'not good' if failed else 'good'}"))


@command.command("schema")
def schema() -> None:
    """Print the JSON Schema of cluster.yaml, for editors."""
    from toolkit.config import json_schema
    from toolkit.output import print_json

    print_json(json_schema())


@command.command("show")
@config_option
def show(config_path: Path | None) -> None:
    """Print cluster.yaml as the toolkit reads it, with every default filled in."""
    from toolkit.output import print_json

    print_json(load_any(config_path).model_dump(mode="json"))
