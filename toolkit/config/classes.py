"""The section of cluster.yaml on workload classes: each is a QOS, and `--qos=NAME` chooses it."""

# No `from __future__ import annotations` here: pydantic reads the annotations at import.

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from pydantic import Field

from toolkit.config import types
from toolkit.config.raw import Finding, KeyPath, items, mapping
from toolkit.config.section import Section
from toolkit.config.suggestions import suggestion
from toolkit.config.types import AccountName, PartitionName

ClassName = Annotated[str, Field(pattern=types.NAME_UNDERSCORE)]
TresName = Annotated[str, Field(pattern=types.TRES)]
Amount = Annotated[int, Field(ge=0, le=1_000_000_000)]
Count = Annotated[int, Field(ge=0, le=1_000_000)]
NORMAL = "normal"
"""Slurm's own QOS, which every cluster has."""


class ClassCaps(Section):
    """The most that may run or wait at one time."""

    jobs: Count | None = None
    """Running jobs."""
    submit: Count | None = None
    """Running and waiting jobs."""
    tres: dict[TresName, Amount] = Field(default={})
    """TRES of running jobs, such as `gres/gpu: 8` or `cpu: 64`. Memory is in MiB."""


class WorkloadClass(Section):
    """A QOS that the toolkit makes, changes and removes."""

    priority: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    """A higher one starts first."""
    preempts: Annotated[tuple[ClassName, ...], Field(max_length=50)] = ()
    """Classes whose jobs give their nodes to its jobs. They are requeued."""
    grace_seconds: Annotated[int, Field(ge=0, le=3_600)] = 120
    """The time of a preempted job of this class to save."""
    max_time: Annotated[str, Field(pattern=types.MAX_TIME)] = "infinite"
    per_user: ClassCaps = ClassCaps()
    per_account: ClassCaps = ClassCaps()
    per_job: dict[TresName, Amount] = Field(default={})
    """TRES of one job."""
    total: ClassCaps = ClassCaps()
    """All jobs of the class together."""
    accounts: tuple[AccountName, ...] = ()
    """The accounts that may use it; without any, all accounts of cluster.yaml."""
    partitions: tuple[PartitionName, ...] = ()
    """The partitions in which its jobs may run; without any, all. A partition's policy says whether
    it buys spot or on demand.
    """


def class_checks(raw: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield unknown names, and preemption that Slurm would not do."""
    classes = mapping(raw, "classes")
    accounts = {str(row.get("name")) for row in items(raw, "accounts") if isinstance(row, dict)}
    partitions = mapping(raw, "partitions")
    for name, section in classes.items():
        path: KeyPath = ("classes", name)
        if name == NORMAL:
            yield path, "Slurm's own QOS; give the class another name"
        yield from _unknown((*path, "preempts"), section, "preempts", "class", classes)
        yield from _unknown((*path, "accounts"), section, "accounts", "account", accounts)
        yield from _unknown((*path, "partitions"), section, "partitions", "partition", partitions)
        preempted = items(section, "preempts")
        if name in preempted:
            yield (*path, "preempts", preempted.index(name)), "a class does not preempt itself"
        if preempted and _has_partition_priority(partitions):
            text = "partitions have a priority, so Slurm preempts by partition and not by class"
            yield (*path, "preempts"), text


def _unknown(
    path: KeyPath, section: Any, key: str, noun: str, known: Mapping[str, Any] | set[str]
) -> Iterator[Finding]:
    for index, item in enumerate(items(section, key)):
        if isinstance(item, str) and item not in known:
            yield (*path, index), f"unknown {noun} '{item}'{suggestion(item, known)}"


def _has_partition_priority(partitions: Mapping[str, Any]) -> bool:
    priorities = {
        section.get("priority", 1) for section in partitions.values() if isinstance(section, dict)
    }
    return len(priorities) > 1
