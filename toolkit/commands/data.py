"""`toolkit data`: datasets by the hash of their content, and this machine's cache of them.

Needs no cluster.yaml: the store is `--store`, $TOOLKIT_DATA_STORE, or what the cluster says.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from toolkit.commands.data_derive import derive
from toolkit.commands.data_options import catalog_of, gb, places_of, say, store_option
from toolkit.commands.groups import SuggestingGroup
from toolkit.commands.options import dry_run_option, json_option, yes_option
from toolkit.errors import NotConfirmed

if TYPE_CHECKING:
    from toolkit.datasets.derive.lineage import Row


@click.group("data", cls=SuggestingGroup)
def command() -> None:
    """Add, check, cache and collect datasets.

    A dataset is named by the hash of its manifest (sha256:…), or by NAME and NAME@NUMBER.
    """


command.add_command(derive)


@command.command("add")
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--name", help="What to call it; NAME is then this version, NAME@1, @2 … stay.")
@store_option
@dry_run_option
@json_option
def add(*, folder: Path, name: str | None, store: str | None, dry_run: bool, as_json: bool) -> None:
    """Add a folder's files as a dataset version.

    Files that did not change since the last time are not read again, content that is in the store
    is not sent again. Without a name the version is garbage after a day.
    """
    from toolkit.datasets.store.add import add as add_folder
    from toolkit.datasets.store.scan import default_memory, scan
    from toolkit.output import print_json

    catalog = catalog_of(store)
    if dry_run:
        scanned = scan(folder, memory=default_memory(folder), say=say)
        made = scanned.manifest
        facts = {"version": made.version, "files": len(made.files), "size": made.size}
        facts["there"] = catalog.has(made.version)
        print_json(facts) if as_json else click.echo(
            f"{made.version}: {len(made.files)} files, {gb(made.size)},"
            f" {'there already' if facts['there'] else 'would be added'}"
        )
        return
    added = add_folder(catalog, folder, name=name, memory=default_memory(folder), say=say)
    if as_json:
        print_json(added)
        return
    click.echo(added.version)
    click.echo(
        f"{added.files} files, {gb(added.size)}; read {added.hashed_files} files, sent"
        f" {gb(added.sent_bytes)}; {added.named.reference if added.named else 'no name'}",
        err=True,
    )


@command.command("name")
@click.argument("reference")
@click.argument("name")
@store_option
@dry_run_option
def name_(*, reference: str, name: str, store: str | None, dry_run: bool) -> None:
    """Let NAME stand for a dataset from now on."""
    from toolkit.datasets.store.catalog import check_name

    catalog = catalog_of(store)
    version = catalog.resolve(reference)
    catalog.manifest(version)
    if dry_run:
        click.echo(f"{check_name(name)} would stand for {version}")
        return
    click.echo(f"{catalog.name(name, version).reference} is {version}")


@command.command("forget")
@click.argument("reference")
@store_option
@dry_run_option
@yes_option
def forget(*, reference: str, store: str | None, dry_run: bool, yes: bool) -> None:
    """Keep NAME@NUMBER, or all of NAME, no longer. The next `gc` may take the content."""
    catalog = catalog_of(store)
    if dry_run:
        for one in catalog.meant(reference):
            click.echo(f"would forget {one.reference} ({one.version})")
        return
    if not yes:
        raise NotConfirmed(f"{reference} would be forgotten", next_step="add --yes")
    for one in catalog.forget(reference):
        click.echo(f"forgot {one.reference} ({one.version})")


@command.command("list")
@click.option("--all", "unnamed", is_flag=True, help="Versions without a name as well.")
@store_option
@json_option
def list_(*, unnamed: bool, store: str | None, as_json: bool) -> None:
    """List names, versions, tiers, and what each was made from."""
    from toolkit.datasets.derive import lineage
    from toolkit.output import print_json, table

    rows = lineage.listed(catalog_of(store), unnamed=unnamed)
    if as_json:
        print_json(rows)
        return
    cells = [
        (f"{one.name}@{one.number}" if one.name else "-", one.tier, one.version, _made(one))
        for one in rows
    ]
    click.echo(table(("NAME", "TIER", "VERSION", "MADE FROM"), cells))


def _made(one: Row) -> str:
    return ", ".join(one.made_from)


@command.command("show")
@click.argument("reference")
@store_option
@click.option("--files", is_flag=True, help="List the files too.")
@json_option
def show(*, reference: str, store: str | None, files: bool, as_json: bool) -> None:
    """Show a dataset, what it was made from, and what was made from it."""
    from toolkit.datasets.derive import lineage
    from toolkit.output import plain, print_json

    catalog = catalog_of(store)
    found = lineage.describe(catalog, reference)
    listed = catalog.manifest(found.version).files if files else ()
    if as_json:
        print_json(
            {**asdict(found), **({"files": [asdict(one) for one in listed]} if files else {})}
        )
        return
    click.echo("\n".join(lineage.lines(found)))
    for one in listed:
        click.echo(f"{one.size:>14}  {plain(one.path)}")


@command.command("verify")
@click.argument("reference")
@store_option
@click.option("--cache", "in_cache", is_flag=True, help="Check this machine's cached copy instead.")
@json_option
def verify(*, reference: str, store: str | None, in_cache: bool, as_json: bool) -> int:
    """Read all of a dataset and compare every hash; exit 1 if anything is damaged.

    A damaged copy in the cache is taken out of it.
    """
    from toolkit.datasets.store.verify import damaged
    from toolkit.output import plain, print_json

    where = places_of(store)
    catalog = catalog_of(store)
    version = catalog.resolve(reference)
    cached = where.node_cache().verify(version) if in_cache else None
    found = cached if in_cache else damaged(catalog, version, say=say)
    if as_json:
        print_json({"version": version, "checked": found is not None, "damaged": found or []})
    elif found is None:
        click.echo(f"{version} is not cached here")
    else:
        for path in found:
            click.echo(f"damaged: {plain(path)}")
        click.echo(f"{version}: {f'{len(found)} files damaged' if found else 'whole'}")
    return 1 if found else 0


@command.command("warm")
@click.argument("references", nargs=-1, required=True)
@store_option
@json_option
def warm(*, references: tuple[str, ...], store: str | None, as_json: bool) -> int:
    """Fill this machine's cache. On nodes: sbatch data-warmup.sbatch, or

    python3 -m toolkit.datasets warm REF, which needs nothing of the toolkit's own.
    """
    from toolkit.datasets.__main__ import warm as fill_cache
    from toolkit.training.attempt.attempt import current

    return fill_cache(references, places_of(store), current(), as_json=as_json)


@command.command("stats")
@json_option
def stats(*, as_json: bool) -> None:
    """Show what this machine's cache holds, and its hit ratio."""
    from toolkit.datasets.__main__ import facts
    from toolkit.output import print_json, table

    found = facts(places_of(None))
    if as_json:
        print_json(found)
        return
    ratio = "-" if found["hit_ratio"] is None else f"{found['hit_ratio']:.0%}"
    click.echo(
        f"{found['cache']}: {gb(found['used_bytes'])} of {gb(found['limit_bytes'])}\n"
        f"{found['requests']} requests: {found['hits']} hits, {found['joined']} waited for"
        f" another's fill, {found['fills']} fills; hit ratio {ratio}\n"
        f"fetched {gb(found['fetched_bytes'])} in {found['fill_seconds']:.0f} s;"
        f" evicted {found['evictions']} ({gb(found['evicted_bytes'])})"
    )
    rows = [(e["version"], gb(e["size"]), "yes" if e["in_use"] else "") for e in found["entries"]]
    if rows:
        click.echo(table(("VERSION", "SIZE", "IN USE"), rows))


@command.command("gc")
@store_option
@click.option("--grace-hours", default=24.0, show_default=True, help="Spare what is younger.")
@dry_run_option
@yes_option
@json_option
def gc(*, store: str | None, grace_hours: float, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Delete what no name leads to.

    Kept is every named version, all that it was made from, and whatever is younger than the grace
    time. While somebody adds, nothing is deleted.
    """
    from toolkit.datasets.store.garbage_collection import plan, sweep
    from toolkit.output import print_json

    catalog = catalog_of(store)
    if not (dry_run or yes):
        raise NotConfirmed("content would be deleted", next_step="see --dry-run, then add --yes")
    doomed = (plan if dry_run else sweep)(catalog, grace=grace_hours * 3600)
    if as_json:
        print_json({**asdict(doomed), "bytes": doomed.size, "dry_run": dry_run})
        return
    did = "would delete" if dry_run else "deleted"
    for version in doomed.versions:
        click.echo(f"{did} {version}")
    click.echo(
        f"{did} {len(doomed.versions)} versions, {len(doomed.objects)} files' content,"
        f" {gb(doomed.size)}; keeping {doomed.kept_versions} versions, {gb(doomed.kept_bytes)}"
    )
