"""The account budgets' part of burst.json (see slurmplugins.config.budgets)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from slurmplugins.config import budgets
from toolkit.config.budgets import on_demand_partitions
from toolkit.render.context import slurm_context
from toolkit.render.slurm import billing_weights

if TYPE_CHECKING:
    from toolkit.config.budgets import BudgetSection
    from toolkit.config.model import ClusterConfig
    from toolkit.render.prices import Prices


FOLDER: Final = "/srv/head/budgets"
"""On the head's data volume: a new head instance must know what was spent."""


def budgets_json(config: ClusterConfig, prices: Prices) -> dict[str, Any]:
    """Return the part, also for a cluster without account budgets."""
    whole = replace(budgets_config(config), weights=_weights(config, prices))
    return budgets.to_json(whole)


def limits_json(config: ClusterConfig) -> dict[str, Any]:
    """Return what cluster.yaml alone says of account budgets, as burst.json has it."""
    return dict(file_json(config)["limits"])


def file_json(config: ClusterConfig) -> dict[str, Any]:
    """Return the part without prices, as cluster.yaml alone says it."""
    return budgets.to_json(budgets_config(config))


def plan_json(config: ClusterConfig) -> dict[str, Any]:
    """Return cluster.yaml's budgets, as the head plans with them.

    Programs of `notify` stay here, since a plan runs none.
    """
    whole = budgets_config(config)
    part = budgets.to_json(whole)
    return {
        "limits": {name: item | {"notify": []} for name, item in part["limits"].items()},
        "families": part["families"],
        "account_projects": {
            account: name
            for account, name in whole.account_projects.items()
            if name in whole.projects
        },
    }


def _weights(config: ClusterConfig, prices: Prices) -> dict[str, budgets.ListedWeights]:
    """Return slurm.conf's weights, if they follow what is bought."""
    if config.slurm.billing != "bought":
        return {}
    context = slurm_context(config, prices)
    usd = {node.pool: node.price for node in context.nodes}
    return {
        line.name: budgets.ListedWeights(
            billing_weights(line),
            {pool: usd[pool] for pool in config.partitions[line.name].pools if usd[pool]},
        )
        for line in context.partitions
        if line.billing
    }


def budgets_config(config: ClusterConfig) -> budgets.BudgetsConfig:
    """Return the account budgets as the head has them, without prices."""
    partitions = config.model_dump(mode="json", include={"partitions", "pools"})
    return budgets.BudgetsConfig(
        budgets={name: _budget(name, item) for name, item in config.budgets.items()},
        families={
            name: _family(config, name)
            for item in config.budgets.values()
            for name in item.accounts
        },
        account_projects={
            item.name: item.project.lower() for item in config.accounts if item.project
        },
        on_demand=on_demand_partitions(partitions),
        tail=float(config.slurm.suspend_time + config.slurm.suspend_timeout),
        folder=FOLDER,
    )


def _budget(name: str, section: BudgetSection) -> budgets.Budget:
    return budgets.Budget(
        name=name,
        accounts=section.accounts,
        projects=section.projects,
        usd=section.usd,
        kind=budgets.PeriodKind(section.period),
        steps=tuple(budgets.BudgetStep(item.at, budgets.Action(item.do)) for item in section.steps),
        since=section.since.timestamp() if section.since else 0.0,
        until=section.until.timestamp() if section.until else 0.0,
        notify=section.notify,
    )


def _family(config: ClusterConfig, account: str) -> frozenset[str]:
    """Return the account and all accounts below it."""
    family = {account}
    while True:
        below = {item.name for item in config.accounts if item.parent in family} - family
        if not below:
            return frozenset(family)
        family |= below
