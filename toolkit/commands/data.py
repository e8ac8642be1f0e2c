"""`toolkit data`: datasets by the hash of their content, and this host's cache of them.

No cluster.yaml is needed: the store is `--store`, $TOOLKIT_DATA_STORE, or the cluster's own.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from toolkit.commands.data_derive import derive
from toolkit.commands.data_options import echo_stderr, gb, open_catalog, places_of, store_option
from toolkit.commands.groups import SuggestingGroup
from toolkit.commands.options import dry_run_option, json_option, yes_option
from toolkit.errors import NotConfirmed

if TYPE_CHECKING:
    from toolkit.datasets.derive.lineage import DatasetRow


@click.group("data", cls=SuggestingGroup)
def command() -> None:
    """Add, check, cache and collect datasets.

    A dataset is named by the hash of its manifest (sha256:…), or by NAME and NAME@NUMBER.
    """


command.add_command(derive)


@command.command("add")
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--name", help="Its name: NAME is then this version, NAME@1, @2 … stay.")
@store_option
@dry_run_option
@json_option
def add(*, folder: Path, name: str | None, store: str | None, dry_run: bool, as_json: bool) -> None:
    """Add a folder's files as a dataset version.

    Unchanged files are not read again, and content in the store is not sent again. Without a name
    the next `gc` may delete the version after a day.
    """
    from toolkit.datasets.store.add import add as add_folder
    from toolkit.datasets.store.scan import default_memory, scan
    from toolkit.output import print_json

    catalog = open_catalog(store)
    if dry_run:
        scan_result = scan(folder, memory=default_memory(folder), log=echo_stderr)
        manifest = scan_result.manifest
        facts = {"version": manifest.version, "files": len(manifest.files), "size": manifest.size}
        facts["there"] = catalog.has(manifest.version)
        print_json(facts) if as_json else click.echo(
            f"{manifest.version}: {len(manifest.files)} files, {gb(manifest.size)},"
            f" {'exists already' if facts['there'] else 'would be added'}"
        )
        return
    result = add_folder(catalog, folder, name=name, memory=default_memory(folder), log=echo_stderr)
    if as_json:
        print_json(result)
        return
    click.echo(result.version)
    click.echo(
        f"{result.files} files, {gb(result.size)}; read {result.hashed_files} files, sent"
        f" {gb(result.sent_bytes)}; {result.named.reference if result.named else 'no name'}",
        err=True,
    )


@command.command("name")
@click.argument("reference")
@click.argument("name")
@store_option
@dry_run_option
def name_(*, reference: str, name: str, store: str | None, dry_run: bool) -> None:
    """Let NAME mean this dataset from now on."""
    from toolkit.datasets.store.catalog import check_name

    catalog = open_catalog(store)
    version = catalog.resolve(reference)
    catalog.manifest(version)
    if dry_run:
        click.echo(f"{check_name(name)} would mean {version}")
        return
    click.echo(f"{catalog.set_name(name, version).reference} is {version}")


@command.command("forget")
@click.argument("reference")
@store_option
@dry_run_option
@yes_option
def forget(*, reference: str, store: str | None, dry_run: bool, yes: bool) -> None:
    """Remove the name NAME@NUMBER, or every number of NAME.

    The next `gc` may delete the content.
    """
    catalog = open_catalog(store)
    if dry_run:
        for entry in catalog.matching_versions(reference):
            click.echo(f"would forget {entry.reference} ({entry.version})")
        return
    if not yes:
        raise NotConfirmed(f"the name {reference} would be removed", next_step="add --yes")
    for entry in catalog.forget(reference):
        click.echo(f"forgot {entry.reference} ({entry.version})")


@command.command("list")
@click.option("--all", "unnamed", is_flag=True, help="Versions without a name as well.")
@store_option
@json_option
def list_(*, unnamed: bool, store: str | None, as_json: bool) -> None:
    """List names, versions, tiers, and what each was made from."""
    from toolkit.datasets.derive import lineage
    from toolkit.output import print_json, table

    rows = lineage.list_datasets(open_catalog(store), include_unnamed=unnamed)
    if as_json:
        print_json(rows)
        return
    cells = [
        (f"{row.name}@{row.number}" if row.name else "-", row.tier, row.version, _inputs_text(row))
        for row in rows
    ]
    click.echo(table(("NAME", "TIER", "VERSION", "MADE FROM"), cells))


def _inputs_text(row: DatasetRow) -> str:
    return ", ".join(row.made_from)


@command.command("show")
@click.argument("reference")
@store_option
@click.option("--files", is_flag=True, help="List the files too.")
@json_option
def show(*, reference: str, store: str | None, files: bool, as_json: bool) -> None:
    """Show a dataset, its inputs, and the datasets made from it."""
    from toolkit.datasets.derive import lineage
    from toolkit.output import plain, print_json

    catalog = open_catalog(store)
    description = lineage.describe(catalog, reference)
    listed_files = catalog.manifest(description.version).files if files else ()
    if as_json:
        print_json(
            {
                **asdict(description),
                **({"files": [asdict(file) for file in listed_files]} if files else {}),
            }
        )
        return
    click.echo("\n".join(lineage.description_lines(description)))
    for file in listed_files:
        click.echo(f"{file.size:>14}  {plain(file.path)}")


@command.command("verify")
@click.argument("reference")
@store_option
@click.option("--cache", "in_cache", is_flag=True, help="Check this host's cached copy instead.")
@json_option
def verify(*, reference: str, store: str | None, in_cache: bool, as_json: bool) -> int:
    """Read all of a dataset and compare every hash.

    Exit code 0: whole; 1: damaged. A damaged copy is removed from the cache.
    """
    from toolkit.datasets.store.verify import find_damaged_content
    from toolkit.output import plain, print_json

    dataset_places = places_of(store)
    catalog = open_catalog(store)
    version = catalog.resolve(reference)
    damaged_in_cache = dataset_places.node_cache().verify(version) if in_cache else None
    damaged_files = (
        damaged_in_cache if in_cache else find_damaged_content(catalog, version, log=echo_stderr)
    )
    if as_json:
        print_json(
            {
                "version": version,
                "checked": damaged_files is not None,
                "damaged": damaged_files or [],
            }
        )
    elif damaged_files is None:
        click.echo(f"{version} is not cached here")
    else:
        for path in damaged_files:
            click.echo(f"damaged: {plain(path)}")
        click.echo(
            f"{version}: {f'{len(damaged_files)} files damaged' if damaged_files else 'whole'}"
        )
    return 1 if damaged_files else 0


@command.command("warm")
@click.argument("references", nargs=-1, required=True)
@store_option
@json_option
def warm(*, references: tuple[str, ...], store: str | None, as_json: bool) -> int:
    """Fill this host's cache.

    On nodes run sbatch data-warmup.sbatch, or python3 -m toolkit.datasets warm REF. The second
    needs no packages of the toolkit.
    """
    from toolkit.datasets.__main__ import warm as fill_cache
    from toolkit.training.attempt.attempt import current

    return fill_cache(references, places_of(store), current(), as_json=as_json)


@command.command("stats")
@json_option
def stats(*, as_json: bool) -> None:
    """Show the datasets in this host's cache, and its hit ratio."""
    from toolkit.datasets.__main__ import cache_facts
    from toolkit.output import print_json, table

    facts = cache_facts(places_of(None))
    if as_json:
        print_json(facts)
        return
    ratio = "-" if facts["hit_ratio"] is None else f"{facts['hit_ratio']:.0%}"
    click.echo(
        f"{facts['cache']}: {gb(facts['used_bytes'])} of {gb(facts['limit_bytes'])}\n"
        f"{facts['requests']} requests: {facts['hits']} hits, {facts['joined']} waited for"
        f" another's fill, {facts['fills']} fills; hit ratio {ratio}\n"
        f"fetched {gb(facts['fetched_bytes'])} in {facts['fill_seconds']:.0f} s;"
        f" evicted {facts['evictions']} ({gb(facts['evicted_bytes'])})"
    )
    rows = [
        (entry["version"], gb(entry["size"]), "yes" if entry["in_use"] else "")
        for entry in facts["entries"]
    ]
    if rows:
        click.echo(table(("VERSION", "SIZE", "IN USE"), rows))


@command.command("gc")
@store_option
@click.option("--grace-hours", default=24.0, show_default=True, help="Keep younger content.")
@dry_run_option
@yes_option
@json_option
def gc(*, store: str | None, grace_hours: float, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Delete content to which no name leads.

    Every named version stays, with all its inputs, and so does content younger than the grace time.
    While somebody adds a dataset, nothing is deleted.
    """
    from toolkit.datasets.store.garbage_collection import collect_garbage, find_garbage
    from toolkit.output import print_json

    catalog = open_catalog(store)
    if not (dry_run or yes):
        raise NotConfirmed("content would be deleted", next_step="see --dry-run, then add --yes")
    garbage = (find_garbage if dry_run else collect_garbage)(catalog, grace=grace_hours * 3600)
    if as_json:
        print_json({**asdict(garbage), "bytes": garbage.size, "dry_run": dry_run})
        return
    verb = "would delete" if dry_run else "deleted"
    for version in garbage.versions:
        click.echo(f"{verb} {version}")
    click.echo(
        f"{verb} {len(garbage.versions)} versions, {len(garbage.objects)} files' content,"
        f" {gb(garbage.size)}; keeping {garbage.kept_versions} versions, {gb(garbage.kept_bytes)}"
    )
