"""Compares two runs: their differences, and how much is the same. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from slurmplugins.head.mlflow import MlflowRun

# Tags of a run's causes. The others (job ids, folders, costs) differ between any two runs.
CAUSES = (
    "mlflow.source.git.commit",
    "toolkit.git_diff",
    "toolkit.code_sha256",
    "toolkit.environment",
    "toolkit.container",
    "toolkit.image_id",
    "toolkit.dataset",
    "toolkit.data_hash",
    "toolkit.seed",
    "toolkit.world_size",
    "toolkit.hardware",
)
ABSENT = "-"


@dataclass(frozen=True, slots=True)
class Difference:
    """A line of a comparison."""

    kind: str  # parameter, cause or metric
    name: str
    left: str
    right: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """The differences of two runs."""

    left: str
    right: str
    differences: tuple[Difference, ...]
    same: int  # how many parameters and causes are equal


def compare(left: MlflowRun, right: MlflowRun) -> Comparison:
    """Return differing parameters, causes and metrics."""
    names = sorted({*left.params, *right.params})
    pairs = [("parameter", name, *_value_pair(left.params, right.params, name)) for name in names]
    pairs += [("cause", name, *_value_pair(left.tags, right.tags, name)) for name in CAUSES]
    recorded_pairs = [pair for pair in pairs if pair[2:] != (ABSENT, ABSENT)]
    differences = [Difference(*pair) for pair in recorded_pairs if pair[2] != pair[3]]
    return Comparison(
        left=left.run_id,
        right=right.run_id,
        differences=(*differences, *_metrics(left.metrics, right.metrics)),
        same=len(recorded_pairs) - len(differences),
    )


def _metrics(left: Mapping[str, float], right: Mapping[str, float]) -> Iterator[Difference]:
    for name in sorted({*left, *right}):
        texts = [f"{side[name]:.6g}" if name in side else ABSENT for side in (left, right)]
        if texts[0] != texts[1]:
            yield Difference("metric", name, *texts)


def _value_pair(left: Mapping[str, str], right: Mapping[str, str], name: str) -> tuple[str, str]:
    return left.get(name, ABSENT), right.get(name, ABSENT)
