"""Read and write RUN_DIR/datasets.json: the datasets that a run's attempts have opened."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from toolkit.training.io.durable_files import read_json, write_json

Opened = Mapping[str, Sequence[str]]
"""For each dataset by the script's name for it (`digits@3`), the versions that it resolved to."""

_NAME = "datasets.json"


def read(run_dir: Path) -> Opened:
    """Return the datasets that the run has opened so far."""
    found = read_json(run_dir / _NAME) or {}
    return {
        str(asked): [str(version) for version in versions]
        for asked, versions in found.items()
        if isinstance(versions, list)
    }


def add(run_dir: Path, taken: Mapping[str, str]) -> Opened:
    """Add the datasets that a process has opened.

    Returns all that the run has opened, with these.
    """
    known = {asked: list(versions) for asked, versions in read(run_dir).items()}
    before = {asked: list(versions) for asked, versions in known.items()}
    for asked, version in taken.items():
        versions = known.setdefault(asked, [])
        if version not in versions:
            versions.append(version)
    if known != before:
        write_json(run_dir / _NAME, known)
    return known


def tags(opened: Opened) -> dict[str, str]:
    """Return the MLflow tags: the versions, and the script's names for them."""
    if not opened:
        return {}
    versions = {version for each in opened.values() for version in each}
    return {
        "toolkit.dataset": ",".join(sorted(versions)),
        "toolkit.dataset_asked": ",".join(sorted(opened)),
    }


def moved(opened: Opened) -> list[str]:
    """Return the names that were not the same dataset in every attempt."""
    return sorted(asked for asked, versions in opened.items() if len(versions) > 1)
