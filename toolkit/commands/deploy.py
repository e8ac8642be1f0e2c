"""`toolkit deploy`: brings the cluster to the state of cluster.yaml."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from toolkit.commands.options import (
    config_option,
    dry_run_option,
    find_config_file,
    load,
    skip_preflight_option,
    yes_option,
)

if TYPE_CHECKING:
    from pathlib import Path

    from toolkit.deploy.preflight import AccountCheck
    from toolkit.prices import PriceBook


@click.command("deploy")
@config_option
@dry_run_option
@yes_option
@click.option(
    "--replace-head", is_flag=True, help="Make a new head instance, from the newest image."
)
@skip_preflight_option
def command(
    *,
    config_path: Path | None,
    dry_run: bool,
    yes: bool,
    replace_head: bool,
    skip_preflight: bool,
) -> int:
    """Bring the cluster to the state of cluster.yaml.

    deploy first asks AWS whether the account can have the cluster, as `toolkit preflight` does. It
    builds missing images, shows and makes the stack's changes, and sets up the head node and its
    accounts. Then it waits until the cluster is healthy. It may be repeated.
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
        if dry_run:
            account, preview = check.beside(
                lambda: Cluster(config, clients, report, lock, book).preview(
                    replace_head=replace_head
                )
            )
            click.echo(f"{preview.text()}\n{deploy_sentence(preview)}")
            check.require(account)
            return 0
        check.require(check.ask())
        return _deploy(check, book, yes=yes, replace_head=replace_head)


def _deploy(check: AccountCheck, book: PriceBook, *, yes: bool, replace_head: bool) -> int:
    from toolkit.deploy import left_users, login_nodes
    from toolkit.deploy.cluster import Cluster
    from toolkit.deploy.head import Head
    from toolkit.deploy.slurm_accounts import apply_accounts
    from toolkit.deploy.status import gather

    config, clients, report = check.config, check.clients, check.report
    cluster = Cluster(config, clients, report, check.lock, book)
    outcome = cluster.deploy(yes=yes, replace_head=replace_head)
    head = Head(clients, config)
    jobs = left_users.limit_left_users(config, head)
    login_nodes.wait_until_up(clients, config, report)
    account_changes = apply_accounts(config, head, report)  # it refuses accounts of others
    status = gather(config, clients)
    if outcome.is_empty and not account_changes:
        click.echo("no changes")
    for jobs_of_user in jobs:
        click.echo(str(jobs_of_user))
    for reason in status.reasons:
        click.echo(f"unhealthy: {reason}", err=True)
    if status.healthy:
        click.echo(f"cluster {config.cluster} is healthy")
    return 0 if status.healthy else 1
