"""`toolkit plan`: the changes that deploy would make."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from toolkit.commands.exit_codes import DIFFERS, FAILED, SAME, ComparingCommand
from toolkit.commands.options import (
    config_option,
    find_config_file,
    json_option,
    load,
    skip_preflight_option,
)

if TYPE_CHECKING:
    from pathlib import Path

    from toolkit.deploy.cluster import DeployPreview
    from toolkit.deploy.preflight import Preflight


@click.command("plan", cls=ComparingCommand)
@config_option
@json_option
@skip_preflight_option
def command(*, config_path: Path | None, as_json: bool, skip_preflight: bool) -> int:
    """Show the changes that deploy would make; make none.

    plan first asks AWS whether the account can have the cluster, as `toolkit preflight` does.

    Exit code 0: deploy would change nothing; 2: it would change something; 1: any error. A wrong
    option, an invalid cluster.yaml and an account that is not ready are errors.
    """
    from toolkit.accounting.settings import price_book
    from toolkit.deploy.cluster import Cluster
    from toolkit.deploy.image_lock import ImageLock
    from toolkit.deploy.plan_summary import deploy_sentence
    from toolkit.deploy.preflight import AccountCheck
    from toolkit.deploy.session import connected
    from toolkit.output import reporter
    from toolkit.prices import imports

    path = find_config_file(config_path)
    config = load(path)
    book = price_book(config, imports.read(imports.folder(path)))
    with connected(config) as clients:
        report, lock = reporter(), ImageLock.beside(path)
        check = AccountCheck(config, clients, report, path, lock, skip=skip_preflight)
        account, preview = check.beside(
            lambda: Cluster(config, clients, report, lock, book).preview()
        )
    if as_json:
        _print_json(preview, account)
        return FAILED if account is not None and not account.ready else _code(preview)
    click.echo(preview.text())
    click.echo(deploy_sentence(preview))
    check.require(account)
    return _code(preview)


def _code(preview: DeployPreview) -> int:
    return SAME if preview.is_empty else DIFFERS


def _print_json(preview: DeployPreview, account: Preflight | None) -> None:
    from toolkit.deploy.plan_summary import deploy_sentence
    from toolkit.output import print_json

    print_json(
        {
            "changes": preview.plan.changes,
            "backup_changes": preview.backup_changes,
            "missing_images": preview.missing_images,
            "new_bundle": preview.new_bundle,
            "deploy": deploy_sentence(preview),
            "new_head": preview.new_head,
            "head_restarts": preview.head_restarts,
            "slurm": preview.slurm,
            "note": preview.plan.note,
            "preflight": None if account is None else account.to_json(),
        }
    )
