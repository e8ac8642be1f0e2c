"""The MLflow port: the head reads runs from the tracking server, and ends and tags them.

The standard library speaks its REST interface; MLflow's own client takes seconds to import. The
server listens on the head. It tells callers apart by uid, and `slurm` may change all runs.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.error import URLError

from slurmplugins.errors import TrackingError
from slurmplugins.model import json_input

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


URL: Final = "http://127.0.0.1:5000"
TIMEOUT: Final = 20.0
PAGE: Final = 200
EXPERIMENTS_IN_QUERY: Final = 100

JOB_TAG: Final = "toolkit.job_id"
"""The tag that toolkit.training writes on every run of a job. Jobs can't import this package."""

MOST_FOUND: Final = 20
"""Runs that a search for a person returns at most."""

_RUN_ID = re.compile(r"[0-9a-f]{32}", re.ASCII)
_PLAIN_TEXT = re.compile(r"[\w .:/+@=-]{1,200}", re.ASCII)


@dataclass(frozen=True, slots=True)
class MlflowRun:
    """An MLflow run. Times are seconds since the epoch."""

    run_id: str
    name: str
    status: str
    started: float | None
    ended: float | None
    tags: Mapping[str, str]
    params: Mapping[str, str]
    metrics: Mapping[str, float]
    """The last value of each metric."""

    @property
    def job(self) -> int | None:
        """Return the run's Slurm job, or the last of several."""
        text = self.tags.get(JOB_TAG, "")
        return int(text) if text.isascii() and text.isdigit() else None


class Mlflow(Protocol):
    """The tracking server. Every method raises TrackingError."""

    def search(self, query: str, *, limit: int | None = None) -> Iterator[MlflowRun]:
        """Yield the matching runs of all experiments, the newest first.

        The order holds within 100 experiments, which are asked at once.
        """
        ...

    def get(self, run_id: str) -> MlflowRun | None:
        """Return a run; None when there is none with that id."""
        ...

    def end(self, run_id: str, status: str, ended: float | None) -> None:
        """Set the status and the end time of a run."""
        ...

    def tag(self, run_id: str, key: str, value: str) -> None: ...


class MlflowRest:
    """`Mlflow` over HTTP."""

    def __init__(self, url: str = URL) -> None:
        self._url = f"{url}/api/2.0/mlflow"
        self._experiments: list[str] | None = None

    def search(self, query: str, *, limit: int | None = None) -> Iterator[MlflowRun]:
        if self._experiments is None:  # read once per program
            experiments = self._pages("experiments/search", {"max_results": 1000}, "experiments")
            self._experiments = [str(experiment["experiment_id"]) for experiment in experiments]
        ids = self._experiments
        remaining = limit
        for start in range(0, len(ids), EXPERIMENTS_IN_QUERY):
            body = {
                "experiment_ids": ids[start : start + EXPERIMENTS_IN_QUERY],
                "filter": query,
                "max_results": PAGE if remaining is None else min(remaining, PAGE),
                "order_by": ["attributes.start_time DESC"],
            }
            for item in self._pages("runs/search", body, "runs"):
                yield parse_run(item)
                remaining = None if remaining is None else remaining - 1
                if remaining == 0:
                    return

    def get(self, run_id: str) -> MlflowRun | None:
        try:
            return parse_run(self._call(f"runs/get?run_id={run_id}", None)["run"])
        except TrackingError as error:
            if "404" in error.message:
                return None
            raise

    def end(self, run_id: str, status: str, ended: float | None) -> None:
        end_time = {} if ended is None else {"end_time": int(ended * 1000)}
        self._call("runs/update", {"run_id": run_id, "status": status, **end_time})

    def tag(self, run_id: str, key: str, value: str) -> None:
        self._call("runs/set-tag", {"run_id": run_id, "key": key, "value": value})

    def _pages(self, path: str, body: Mapping[str, Any], key: str) -> Iterator[dict[str, Any]]:
        token = ""
        while True:
            answer = self._call(path, {**body, "page_token": token} if token else body)
            yield from answer.get(key, [])
            token = answer.get("next_page_token") or ""
            if not token:
                return

    def _call(self, path: str, body: Mapping[str, Any] | None) -> dict[str, Any]:
        import urllib.request

        request = urllib.request.Request(  # noqa: S310  # the address is this machine's own
            f"{self._url}/{path}",
            None if body is None else json.dumps(body).encode(),
            {"Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:  # noqa: S310  # the same
                content = json_input.loads(answer.read())
        except (URLError, OSError, ValueError) as error:
            raise TrackingError(f"MLflow, {path}: {error}") from error
        if not isinstance(content, dict):
            raise TrackingError(f"MLflow, {path}: the answer is not a JSON object")
        return content


def parse_run(item: Mapping[str, Any]) -> MlflowRun:
    """Parse a run of MLflow's REST interface."""
    info, data = item["info"], item.get("data", {})
    return MlflowRun(
        run_id=str(info["run_id"]),
        name=str(info.get("run_name", "")),
        status=str(info.get("status", "")),
        started=_seconds(info.get("start_time")),
        ended=_seconds(info.get("end_time")),
        tags={str(pair["key"]): str(pair.get("value", "")) for pair in data.get("tags", [])},
        params={str(pair["key"]): str(pair.get("value", "")) for pair in data.get("params", [])},
        metrics={str(pair["key"]): float(pair["value"]) for pair in data.get("metrics", [])},
    )


def _seconds(milliseconds: object) -> float | None:
    """Convert to seconds; MLflow omits an absent time or gives 0."""
    return int(str(milliseconds)) / 1000 if milliseconds else None


def find_runs(mlflow: Mlflow, reference: str) -> list[MlflowRun]:
    """Return the runs that a person may mean, the newest first.

    `reference` is a job's number, a run id, a run's directory or its name. Empty for text that
    can't be a reference.
    """
    if _RUN_ID.fullmatch(reference):
        run = mlflow.get(reference)
        return [run] if run else []
    if not _PLAIN_TEXT.fullmatch(reference):
        return []
    if reference.isdigit():
        query = _job_query(int(reference))
    elif reference.startswith("/"):
        query = f"tags.`toolkit.run_dir` = '{reference.rstrip('/')}'"
    else:
        query = f"attributes.run_name = '{reference}'"
    return list(mlflow.search(query, limit=MOST_FOUND))


def tag_runs(mlflow: Mlflow, jobs: Mapping[int, Mapping[str, str]]) -> list[dict[str, Any]]:
    """Set the tags of each job on its runs.

    Returns the job and id of each tagged run.
    """
    tagged_runs: list[dict[str, Any]] = []
    for job, tags in jobs.items():
        for run in list(mlflow.search(_job_query(job))):
            for key, value in tags.items():
                mlflow.tag(run.run_id, key, value)
            tagged_runs.append({"job": job, "run_id": run.run_id})
    return tagged_runs


def _job_query(job: int) -> str:
    return f"tags.`{JOB_TAG}` = '{job}'"


def parse_job_tags(text: str) -> Mapping[int, Mapping[str, str]]:
    """Parse a JSON object of jobs with their tags.

    Raises ValueError for anything else.
    """
    try:
        return {
            int(job): {str(key): str(value) for key, value in tags.items()}
            for job, tags in json_input.loads(text).items()
        }
    except AttributeError as error:
        raise ValueError(text) from error
