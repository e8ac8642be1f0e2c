"""Runs as text for a terminal."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from toolkit.runs.compare import CAUSES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from slurmplugins.head.mlflow import Run
    from toolkit.runs.queries import Found

LIST = ("JOB", "NAME", "USER", "STATUS", "STARTED", "ATTEMPTS", "USD", "RUN")
_TIME = "%Y-%m-%d %H:%M"


def line(run: Run) -> tuple[str, ...]:
    """Return a row of the list."""
    tags = run.tags
    user = tags.get("toolkit.user") or tags.get("mlflow.user", "-")
    usd = tags.get("cost_usd") or tags.get("toolkit.cost_usd_estimate", "-")
    job, attempts = tags.get("toolkit.job_id", "-"), tags.get("toolkit.attempts", "-")
    return (job, run.name, user, run.status, moment(run.started), attempts, usd, run.run_id)


def page(found: Found) -> Iterator[str]:
    """Yield everything about one run."""
    yield found.name
    if found.run:
        yield from _mlflow(found.run)
    if found.folder:
        yield from _folder(found.folder)
    else:
        yield "its folder is gone, or can't be read: attempts and submission are not known"


def moment(at: float | None) -> str:
    """Return a time in UTC."""
    return datetime.fromtimestamp(at, UTC).strftime(_TIME) if at else "-"


def _mlflow(run: Run) -> Iterator[str]:
    ended_by = run.tags.get("toolkit.ended_by")
    why = f" ({ended_by})" if ended_by else ""
    yield f"  {run.status}{why}, {moment(run.started)} to {moment(run.ended)} UTC, run {run.run_id}"
    yield from _block("parameters", run.params)
    yield from _block("made of", {name: run.tags[name] for name in CAUSES if name in run.tags})
    yield from _block("metrics", {name: f"{value:.6g}" for name, value in run.metrics.items()})
    yield from _block("cost", {n: v for n, v in run.tags.items() if n.startswith("cost_usd")})


def _folder(folder: Mapping[str, Any]) -> Iterator[str]:
    yield f"folder: {folder['run_dir']}"
    yield "attempts:"
    for one in folder["attempts"]:
        steps = f"steps {one['step_start']} to {one['step_end']}"
        on = ", ".join(one["nodes"])
        yield f"  {one['attempt']}  {moment(one['started_at'])}  {one['cause']}  {steps}  on {on}"
    split = folder["goodput"]
    if split:
        total = sum(split["seconds"].values()) or 1.0
        yield "where the time went:"
        for part, seconds in split["seconds"].items():
            usd = split["cost_usd"].get(part)
            cost = f"  {usd} USD" if usd else ""
            yield f"  {part:<8} {seconds:>10.1f} s  {100 * seconds / total:>5.1f} %{cost}"
        yield f"  {'waiting':<8} {split['waiting']:>10.1f} s  between attempts"
    submitted = folder["submission"]
    replayable = "yes, `toolkit runs replay`" if submitted else "no, its submission was not kept"
    yield f"can be replayed: {replayable}"


def _block(title: str, values: Mapping[str, str]) -> Iterator[str]:
    if values:
        yield f"{title}:"
        width = max(len(name) for name in values)
        yield from (f"  {name:<{width}}  {value}" for name, value in sorted(values.items()))
