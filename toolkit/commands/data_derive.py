"""`toolkit data derive`: a dataset made of others by a program, made once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from toolkit.commands.data_options import catalog_of, places_of, say, store_option
from toolkit.commands.options import dry_run_option, json_option

if TYPE_CHECKING:
    from toolkit.datasets.derive.derive import Planned
    from toolkit.datasets.store.catalog import Tier


def _params(_: click.Context, __: click.Parameter, words: tuple[str, ...]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not (equals and name.isidentifier()):
            raise click.BadParameter(f"{word!r} is not NAME=VALUE")
        try:
            found[name] = json.loads(text)
        except ValueError:
            found[name] = text
    return found


@click.command("derive")
@click.option("--from", "inputs", metavar="REF", multiple=True, required=True, help="An input.")
@click.option(
    "--param", "params", metavar="NAME=VALUE", multiple=True, callback=_params,
    help="A parameter; {NAME} in the command is its value.",
)  # fmt: skip
@click.option(
    "--code", type=click.Path(exists=True, path_type=Path), multiple=True,
    help="What else the result depends on  [default: the files among the command's words].",
)  # fmt: skip
@click.option("--name", help="What to call the result.")
@click.option("--tier", type=click.Choice(["bronze", "silver", "gold"]), help="Its grade.")
@store_option
@dry_run_option
@json_option
@click.argument("words", metavar="COMMAND...", nargs=-1, required=True)
def derive(
    *,
    inputs: tuple[str, ...],
    params: dict[str, Any],
    code: tuple[Path, ...],
    name: str | None,
    tier: Tier | None,
    store: str | None,
    dry_run: bool,
    as_json: bool,
    words: tuple[str, ...],
) -> None:
    """Make a dataset of others by a command, unless the same was made before.

    toolkit data derive --from raw@1 --name tokens -- python tokenize.py {input} {output}

    It is kept under the hash of the inputs' manifests, the code, and the command with its
    parameters. {input}, {input2} … and {output} are folders; the inputs are read-only.
    """
    from toolkit.datasets.derive import derive as derivations, program
    from toolkit.output import print_json

    files = [*program.code_in(words)] if not code else [*code]
    stated = program.recorded(words, params)
    if dry_run:
        _would(derivations.planned(catalog_of(store), inputs, files, stated), as_json=as_json)
        return
    made = derivations.derived(
        inputs,
        program.build_by(words),
        params=stated,
        code=files,
        tier=tier,
        name=name,
        where=places_of(store),
    )
    if as_json:
        print_json(made)
        return
    click.echo(made.version)
    say(f"{made.derivation.tier}, {'made before' if made.reused else 'made'}")


def _would(found: Planned, *, as_json: bool) -> None:
    from toolkit.output import print_json

    if as_json:
        print_json(found)
    elif found.found:
        click.echo(f"{found.found.output}: there already, nothing would be run")
    else:
        click.echo(f"would be made of {', '.join(found.inputs)}, by code {found.code[:12]}")
