"""`toolkit data derive`: a dataset made of others by a program, made once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from toolkit.commands.data_options import echo_stderr, open_catalog, places_of, store_option
from toolkit.commands.options import dry_run_option, json_option

if TYPE_CHECKING:
    from toolkit.datasets.derive.derive import BuildPlan
    from toolkit.datasets.store.catalog import DatasetTier


def _params(_: click.Context, __: click.Parameter, words: tuple[str, ...]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for argument in words:
        name, equals, text = argument.partition("=")
        if not (equals and name.isidentifier()):
            raise click.BadParameter(f"{argument!r} is not NAME=VALUE")
        try:
            values[name] = json.loads(text)
        except ValueError:
            values[name] = text
    return values


@click.command("derive")
@click.option("--from", "inputs", metavar="REF", multiple=True, required=True, help="An input.")
@click.option(
    "--param", "params", metavar="NAME=VALUE", multiple=True, callback=_params,
    help="A parameter; {NAME} in the command is its value.",
)  # fmt: skip
@click.option(
    "--code", type=click.Path(exists=True, path_type=Path), multiple=True,
    help="Files on which the result depends  [default: those in COMMAND].",
)  # fmt: skip
@click.option("--name", help="The result's name.")
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
    tier: DatasetTier | None,
    store: str | None,
    dry_run: bool,
    as_json: bool,
    words: tuple[str, ...],
) -> None:
    """Make a dataset from others by a command, once.

    toolkit data derive --from raw@1 --name tokens -- python tokenize.py {input} {output}

    The command runs only if no result exists for these inputs, this code, and this command with
    its parameters. {input}, {input2} … and {output} are folders; the inputs are read-only.
    """
    from toolkit.datasets.derive import derive as derivations, program
    from toolkit.output import print_json

    files = [*program.code_files(words)] if not code else [*code]
    recorded_command = program.key_params(words, params)
    if dry_run:
        _print_plan(
            derivations.plan_build(open_catalog(store), inputs, files, recorded_command),
            as_json=as_json,
        )
        return
    result = derivations.derived(
        inputs,
        program.program_build(words),
        params=recorded_command,
        code=files,
        tier=tier,
        name=name,
        where=places_of(store),
    )
    if as_json:
        print_json(result)
        return
    click.echo(result.version)
    echo_stderr(f"{result.derivation.tier}, {'made before' if result.reused else 'made'}")


def _print_plan(plan: BuildPlan, *, as_json: bool) -> None:
    from toolkit.output import print_json

    if as_json:
        print_json(plan)
    elif plan.found:
        click.echo(f"{plan.found.output}: exists already, no command would run")
    else:
        click.echo(f"would be made from {', '.join(plan.inputs)}, by code {plan.code[:12]}")
