"""`toolkit recommend`: which GPU, how many, spot or not, from earlier runs or the model's size."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from toolkit.commands.options import (
    config_option,
    dry_run_option,
    find_config_file,
    json_option,
    load,
)

if TYPE_CHECKING:
    from pathlib import Path

    from toolkit.config import ClusterConfig
    from toolkit.head_runner import Runner
    from toolkit.quote.facts import Facts
    from toolkit.quote.history import History
    from toolkit.quote.measured import MeasuredRun
    from toolkit.quote.model_memory import ModelSize
    from toolkit.quote.predictions import Prediction, PredictionError
    from toolkit.quote.recommend import Choice, Need


@click.command("recommend")
@config_option
@json_option
@dry_run_option
@click.option("--parameters", metavar="7B", help="The model's size, where no run was measured.")
@click.option(
    "--precision",
    type=click.Choice(["mixed", "bf16", "fp32"]),
    default="mixed",
    show_default=True,
    help="Of weights and gradients, for --parameters.",
)
@click.option(
    "--optimizer",
    type=click.Choice(["adamw", "adamw-8bit", "sgd-momentum", "sgd"]),
    default="adamw",
    show_default=True,
    help="The optimizer, for --parameters.",
)
@click.argument("subject", metavar="SCRIPT|JOB")
def command(
    *,
    config_path: Path | None,
    as_json: bool,
    dry_run: bool,
    parameters: str | None,
    precision: str,
    optimizer: str,
    subject: str,
) -> None:
    """Say which GPU suits a training, how many, spot or not.

    Earlier runs of the same job name tell memory and speed. Without one, the model's size does:
    give --parameters. The prediction is recorded on this computer; the next recommendation says how
    wrong it was. --dry-run records nothing.
    """
    from toolkit.deploy.head import Head
    from toolkit.deploy.session import connected
    from toolkit.quote import facts, offers, predictions, recommend
    from toolkit.quote.model_memory import ModelSize, parse_parameters

    size = ModelSize(parse_parameters(parameters), precision, optimizer) if parameters else None
    config = load(config_path)
    now = int(time.time())
    path = predictions.record_path(config.cluster)
    with connected(config) as clients:
        job_name, runs, named = _runs(Head(clients, config), subject)
        cluster_facts = facts.read(config, find_config_file(config_path), clients, now)
    need = _need(subject, named or runs, size)
    market = offers.Market(config, cluster_facts.book, now)
    pool_choices = recommend.choices(need, market, _history(job_name, config, cluster_facts))
    past = predictions.error(predictions.read(path), runs)
    if pool_choices and not dry_run:
        predictions.add(path, prediction_of(now, job_name, pool_choices[0], need.run))
    _print(job_name, need, pool_choices, past, as_json=as_json)


def _runs(head: Runner, subject: str) -> tuple[str, list[MeasuredRun], list[MeasuredRun]]:
    """Return the job name, its measured runs, and the named one."""
    from toolkit.commands.quote import read
    from toolkit.quote.measured import measured_run, measured_runs
    from toolkit.runs import queries
    from toolkit.runs.errors import TrackingAway

    named = []
    if subject.isascii() and subject.isdigit():
        run = queries.find_run(head, subject).run
        measured = measured_run(run) if run else None
        if measured is None:
            return subject, [], []
        named, job_name = [measured], measured.job_name
    else:
        job_name = read(subject, ()).name
    try:
        newest = queries.newest_runs(head, limit=500, running=False)
    except TrackingAway:
        return job_name, [], named
    return job_name, measured_runs(newest, job_name), named


def _need(subject: str, runs: list[MeasuredRun], size: ModelSize | None) -> Need:
    """Return what the training needs. Raises NothingMeasured."""
    from toolkit.quote.errors import NothingMeasured
    from toolkit.quote.recommend import Need

    if size is not None:  # a person who states a size may mean another model
        return Need(size.gib, str(size))
    if runs:
        return Need.of_run(runs[0])
    raise NothingMeasured(
        f"no earlier run of {subject} measured its GPUs",
        next_step="give the model's size: --parameters 7B",
    )


def _history(job_name: str, config: ClusterConfig, cluster_facts: Facts) -> History:
    """Return what the records tell of all pools."""
    from toolkit.quote.history import Subject, history

    spot_types = frozenset(
        offering.type
        for pool in config.pools.values()
        for offering in pool.offerings
        if offering.capacity == "spot"
    )
    subject = Subject(
        job_name, "", frozenset(config.partitions), frozenset(config.pools), spot_types
    )
    return history(subject, cluster_facts.attempts, cluster_facts.instances, cluster_facts.window)


def prediction_of(now: int, job_name: str, choice: Choice, run: MeasuredRun | None) -> Prediction:
    """Return what the record keeps, with the measured run before."""
    from toolkit.quote.predictions import Prediction

    return Prediction(
        at=float(now),
        job_name=job_name,
        gpu=choice.gpu,
        gpus=choice.gpus,
        memory_mib=choice.memory_mib,
        samples_per_second=choice.samples_per_second,
        usd_per_hour=choice.usd_per_hour,
        instance_type=choice.instance_type,
        before_instance_type="" if run is None else run.instance_type,
        before_gpus=0 if run is None else run.gpus,
        before_samples_per_second=None if run is None else run.samples_per_second,
    )


def _print(
    job_name: str,
    need: Need,
    pool_choices: list[Choice],
    past: PredictionError | None,
    *,
    as_json: bool,
) -> None:
    from toolkit.output import plain, print_json, table
    from toolkit.quote import recommend_words

    if as_json:
        print_json(
            {"job_name": job_name, "need": need, "choices": pool_choices, "past_predictions": past}
        )
        return
    click.echo(plain(f"{job_name} needs {need.gib:.1f} GiB over its GPUs: {need.reason}"))
    if not pool_choices:
        click.echo("no pool of this cluster can hold it: add one with larger or more GPUs")
    else:
        rows = [_row(choice) for choice in pool_choices]
        unit = "USD/1M SAMPLES" if pool_choices[0].samples_per_second else "USD/EXAFLOP"
        click.echo(table(("POOL", "GPUS", "NODES", "BUY", "USD/H", "GIB/GPU", unit), rows))
        best = pool_choices[0]
        click.echo(
            plain(
                f"recommended: {best.gpus} x {best.gpu} on {best.instance_type} in {best.zone},"
                f" {best.lifecycle} ({best.other})"
            )
        )
        click.echo(plain(recommend_words.speed(best, need.run)))
    click.echo(recommend_words.use(need.run))
    click.echo(recommend_words.past(past))


def _row(choice: Choice) -> tuple[str, ...]:
    return (
        choice.pool,
        f"{choice.gpus} x {choice.gpu}",
        str(choice.nodes),
        choice.lifecycle,
        f"{choice.usd_per_hour:.2f}",
        f"{choice.memory_mib / 1024:.1f}",
        "?" if choice.usd_per_work is None else f"{choice.usd_per_work:.2f}",
    )
