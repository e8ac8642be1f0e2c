"""Read and write RUN_DIR/datasets.json: the datasets that a run's attempts have opened."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from toolkit.training.io.durable_files import read_json, write_json

VersionsByName = Mapping[str, Sequence[str]]
"""For each dataset by the script's name for it (`digits@3`), the versions that it resolved to."""

_NAME = "datasets.json"


def read(run_dir: Path) -> VersionsByName:
    """Return the datasets that the run has opened so far."""
    content = read_json(run_dir / _NAME) or {}
    return {
        str(name): [str(version) for version in versions]
        for name, versions in content.items()
        if isinstance(versions, list)
    }


def add(run_dir: Path, opened_versions: Mapping[str, str]) -> VersionsByName:
    """Add the datasets that a process has opened.

    Returns all that the run has opened, with these.
    """
    versions_by_name = {name: list(versions) for name, versions in read(run_dir).items()}
    earlier_versions = {name: list(versions) for name, versions in versions_by_name.items()}
    for name, version in opened_versions.items():
        versions = versions_by_name.setdefault(name, [])
        if version not in versions:
            versions.append(version)
    if versions_by_name != earlier_versions:
        write_json(run_dir / _NAME, versions_by_name)
    return versions_by_name


def tags(versions_by_name: VersionsByName) -> dict[str, str]:
    """Return the MLflow tags: the versions, and the script's names for them."""
    if not versions_by_name:
        return {}
    versions = {version for name_versions in versions_by_name.values() for version in name_versions}
    return {
        "toolkit.dataset": ",".join(sorted(versions)),
        "toolkit.dataset_asked": ",".join(sorted(versions_by_name)),
    }


def changed_names(versions_by_name: VersionsByName) -> list[str]:
    """Return the names that were not the same dataset in every attempt."""
    return sorted(name for name, versions in versions_by_name.items() if len(versions) > 1)
