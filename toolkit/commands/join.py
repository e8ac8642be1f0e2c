"""`toolkit join`: cloud nodes in a Slurm that a site runs already."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

from toolkit.commands.exit_codes import DIFFERS, FAILED, SAME, ComparingCommand
from toolkit.commands.groups import SuggestingGroup
from toolkit.commands.join_check import check_command
from toolkit.commands.options import (
    config_option,
    dry_run_option,
    find_config_file,
    json_option,
    load_join,
    yes_option,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from toolkit.join.apply import Join
    from toolkit.join.remove import Removal

    Command = TypeVar("Command", bound=Callable[..., Any])


def _slugs(_ctx: click.Context, _param: click.Parameter, names: tuple[str, ...]) -> tuple[str, ...]:
    """Refuse names of findings that there are not."""
    from difflib import get_close_matches

    from toolkit.join.preflight.checks import SLUGS

    for name in names:
        if name not in SLUGS:
            near = get_close_matches(name, SLUGS, n=1)
            hint = f"did you mean {near[0]!r}?" if near else "`toolkit join check` prints the names"
            raise click.BadParameter(f"no finding has the name {name!r}: {hint}")
    return names


def _skip_check_option(function: Command) -> Command:
    """Add `--skip-check`, passed on as `skipped`."""
    return click.option(
        "--skip-check",
        "skipped",
        metavar="SLUG",
        multiple=True,
        callback=_slugs,
        help="Go on in spite of this error of `toolkit join check`. It may be repeated.",
    )(function)


@click.group("join", cls=SuggestingGroup)
def command() -> None:
    """Add cloud nodes to a Slurm that a site runs already.

    cluster.yaml says `kind: join`. The site keeps its slurmctld, slurmdbd, key and users.
    """


command.add_command(check_command)


@command.command("plan", cls=ComparingCommand)
@config_option
@json_option
@_skip_check_option
def plan_command(*, config_path: Path | None, as_json: bool, skipped: tuple[str, ...]) -> int:
    """Show what apply would change; change nothing.

    plan first asks the site, as `toolkit join check` does. The diff is of what slurmctld reads. A
    conflict or an error of the site is named with its line.

    Exit code 0: nothing would change; 2: something would; 1: any error, also one of the site.
    """
    from dataclasses import asdict

    from toolkit.output import plain, print_json

    with _join(config_path, skipped) as (join, _):
        plan = join.plan()
    if as_json:
        print_json({**asdict(plan), "refused": plan.is_refused})
    else:
        click.echo(plain(plan.text().expandtabs()))
    return FAILED if plan.is_refused else SAME if plan.is_empty else DIFFERS


@command.command("apply")
@config_option
@dry_run_option
@yes_option
@_skip_check_option
def apply_command(
    *, config_path: Path | None, dry_run: bool, yes: bool, skipped: tuple[str, ...]
) -> None:
    """Add the cloud nodes to the site's Slurm.

    apply first asks the site, as `toolkit join check` does, and an error refuses the join. Then it
    makes the AWS side, installs our programs on the controllers, and reconfigures slurmctld. Of the
    site's files, slurm.conf gets one line at its end, with --yes. It may be repeated.
    """
    from toolkit.output import plain

    with _join(config_path, skipped) as (join, _):
        if dry_run:
            plan = join.plan()
            plan.require()
            click.echo(plain(plan.text().expandtabs()))
            return
        plan = join.apply(yes=yes)
    click.echo(f"the cloud nodes are in {plan.cluster_name}")


@command.command("remove")
@config_option
@click.option(
    "--records",
    "with_records",
    is_flag=True,
    help="Delete the records of jobs and instances too: no report will be possible.",
)
@dry_run_option
@yes_option
def remove_command(
    *, config_path: Path | None, with_records: bool, dry_run: bool, yes: bool
) -> None:
    """Take the cloud nodes out again, and delete what apply made.

    The records stay, unless --records is given. slurm.conf is then as it was, to the byte. Jobs of
    our partitions end, unless they wait for a partition of the site's too.
    """
    with _join(config_path) as (_, removal):
        if dry_run:
            click.echo(removal.preview(with_records=with_records))
            return
        removal.remove(yes=yes, with_records=with_records)
    click.echo("the cloud nodes are removed")


@contextmanager
def _join(
    config_path: Path | None, skipped: tuple[str, ...] = ()
) -> Iterator[tuple[Join, Removal]]:
    from toolkit.accounting.settings import price_book
    from toolkit.config.places import line_of, read_file
    from toolkit.deploy.destroy import Destroyer
    from toolkit.deploy.image_lock import ImageLock
    from toolkit.deploy.session import connected
    from toolkit.join.apply import Join
    from toolkit.join.aws_side import AwsSide
    from toolkit.join.remove import Removal
    from toolkit.join.site import Place
    from toolkit.output import reporter
    from toolkit.prices import imports

    path = find_config_file(config_path)
    config = load_join(path)
    tree = read_file(path)
    places = {rack: Place(str(path), line_of(tree, ("burst", rack))) for rack in config.burst}
    with connected(config) as clients:
        report, lock = reporter(), ImageLock.beside(path)
        book = price_book(config, imports.read(imports.folder(path)))
        aws = AwsSide(config, clients, report, lock, book)
        join = Join(config, aws, report, skipped=skipped, rule_places=places)
        yield join, Removal(config, join, Destroyer(config, clients, report), report)
