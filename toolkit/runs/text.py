"""Runs as text for a terminal."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from toolkit.runs.compare import CAUSES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from slurmplugins.head.mlflow import MlflowRun
    from toolkit.runs.queries import FoundRun

LIST_HEADERS = ("JOB", "NAME", "USER", "STATUS", "STARTED", "ATTEMPTS", "USD", "RUN")
_TIME = "%Y-%m-%d %H:%M"


def list_row(run: MlflowRun) -> tuple[str, ...]:
    """Return a row of the list."""
    tags = run.tags
    user = tags.get("toolkit.user") or tags.get("mlflow.user", "-")
    usd = tags.get("cost_usd") or tags.get("toolkit.cost_usd_estimate", "-")
    job, attempts = tags.get("toolkit.job_id", "-"), tags.get("toolkit.attempts", "-")
    return (job, run.name, user, run.status, format_time(run.started), attempts, usd, run.run_id)


def run_lines(found_run: FoundRun) -> Iterator[str]:
    """Yield everything about one run."""
    yield found_run.name
    if found_run.run:
        yield from _mlflow_lines(found_run.run)
    if found_run.folder:
        yield from _folder_lines(found_run.folder)
    else:
        yield "its run folder is gone or can't be read: attempts and submission are unknown"


def format_time(at: float | None) -> str:
    """Return a time in UTC."""
    return datetime.fromtimestamp(at, UTC).strftime(_TIME) if at else "-"


def _mlflow_lines(run: MlflowRun) -> Iterator[str]:
    ended_by = run.tags.get("toolkit.ended_by")
    ender = f" ({ended_by})" if ended_by else ""
    times = f"{format_time(run.started)} to {format_time(run.ended)} UTC"
    yield f"  {run.status}{ender}, {times}, run {run.run_id}"
    yield from _value_lines("parameters", run.params)
    causes = {name: run.tags[name] for name in CAUSES if name in run.tags}
    metrics = {name: f"{value:.6g}" for name, value in run.metrics.items()}
    cost = {name: value for name, value in run.tags.items() if name.startswith("cost_usd")}
    yield from _value_lines("made of", causes)
    yield from _value_lines("metrics", metrics)
    yield from _value_lines("cost", cost)


def _folder_lines(folder: Mapping[str, Any]) -> Iterator[str]:
    yield f"folder: {folder['run_dir']}"
    yield "attempts:"
    for attempt in folder["attempts"]:
        steps = f"steps {attempt['step_start']} to {attempt['step_end']}"
        nodes = ", ".join(attempt["nodes"])
        start = format_time(attempt["started_at"])
        yield f"  {attempt['attempt']}  {start}  {attempt['cause']}  {steps}  on {nodes}"
    goodput = folder["goodput"]
    if goodput:
        total = sum(goodput["seconds"].values()) or 1.0
        yield "where the time went:"
        for part, seconds in goodput["seconds"].items():
            usd = goodput["cost_usd"].get(part)
            cost = f"  {usd} USD" if usd else ""
            yield f"  {part:<8} {seconds:>10.1f} s  {100 * seconds / total:>5.1f} %{cost}"
        yield f"  {'waiting':<8} {goodput['waiting']:>10.1f} s  between attempts"
    replay = "yes, `toolkit runs replay`" if folder["submission"] else "no, no submission recorded"
    yield f"can be replayed: {replay}"


def _value_lines(title: str, values: Mapping[str, str]) -> Iterator[str]:
    if values:
        yield f"{title}:"
        width = max(len(name) for name in values)
        yield from (f"  {name:<{width}}  {value}" for name, value in sorted(values.items()))
