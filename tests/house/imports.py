"""Reads the import graph: circles, and the modules of one program."""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING

import grimp

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from grimp import ImportGraph


def graph_of(*packages: str) -> ImportGraph:
    """Read the imports of these packages, without those that only types need."""
    return grimp.build_graph(*packages, exclude_type_checking_imports=True, cache_dir=None)


def circles(imports: Mapping[str, Iterable[str]]) -> list[frozenset[str]]:
    """Return circles of modules that import each other; none share a module.

    `imports` has the imported modules of each module.
    """
    groups: list[frozenset[str]] = []
    remaining = dict(imports)
    while True:
        try:
            TopologicalSorter(remaining).prepare()
        except CycleError as error:
            groups.append(frozenset(error.args[1]))
            remaining = {one: set(other) - groups[-1] for one, other in remaining.items()}
        else:
            return groups


def imports_of(graph: ImportGraph) -> dict[str, frozenset[str]]:
    """Return the modules that each module imports directly."""
    return {one: frozenset(graph.find_modules_directly_imported_by(one)) for one in graph.modules}


def needed_by(graph: ImportGraph, program: str) -> frozenset[str]:
    """Return the modules that a program needs, itself among them.

    Packages do not count.
    """
    needed = {program, *graph.find_upstream_modules(program)}
    return frozenset(one for one in needed if not graph.find_children(one))
