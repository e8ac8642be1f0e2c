"""A tracking server in memory, as slurmplugins.head.mlflow calls one."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

from slurmplugins.head.mlflow import MlflowRun


def a_run(run_id: str, job: str = "7", **changes) -> MlflowRun:
    values = {
        "run_id": run_id,
        "name": f"digits {job}",
        "status": "RUNNING",
        "started": 100.0,
        "ended": None,
        "tags": {"toolkit.job_id": job},
        "params": {},
        "metrics": {},
    }
    return MlflowRun(**(values | changes))


@dataclass
class FakeMlflow:
    """A server that understands only the filters that the toolkit writes."""

    runs: dict[str, MlflowRun] = field(default_factory=dict)

    @classmethod
    def of(cls, *runs: MlflowRun) -> FakeMlflow:
        return cls({run.run_id: run for run in runs})

    def search(self, query, *, limit=None):
        found = [run for run in self.runs.values() if self._matches(run, query)]
        newest = sorted(found, key=lambda run: run.started or 0, reverse=True)
        yield from newest[:limit]

    def get(self, run_id):
        return self.runs.get(run_id)

    def end(self, run_id, status, ended):
        self.runs[run_id] = replace(self.runs[run_id], status=status, ended=ended)

    def tag(self, run_id, key, value):
        run = self.runs[run_id]
        self.runs[run_id] = replace(run, tags={**run.tags, key: value})

    def _matches(self, run: MlflowRun, query: str) -> bool:
        if not query:
            return True
        match = re.fullmatch(r"(tags|attributes)\.`?([\w.]+)`? = '([^']*)'", query)
        assert match, f"unexpected filter: {query}"
        kind, name, value = match.groups()
        if kind == "tags":
            return run.tags.get(name) == value
        return {"status": run.status, "run_name": run.name}[name] == value
