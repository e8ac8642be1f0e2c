"""Reads the import graph: circles, and how many modules one program needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import grimp

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from grimp import ImportGraph


def graph_of(*packages: str) -> ImportGraph:
    """Read the imports of these packages, without those that only types need."""
    return grimp.build_graph(*packages, exclude_type_checking_imports=True, cache_dir=None)


def circles(imports: Mapping[str, Iterable[str]]) -> list[frozenset[str]]:
    """Return the groups of modules that import each other, by Tarjan's algorithm.

    `imports` has for each module what it imports.
    """
    index: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    groups: list[frozenset[str]] = []

    def visit(module: str) -> None:
        index[module] = lowest[module] = len(index)
        stack.append(module)
        for other in imports.get(module, ()):
            if other not in index:
                visit(other)
            if other in stack:
                lowest[module] = min(lowest[module], lowest[other])
        if lowest[module] == index[module]:
            start = stack.index(module)
            group = frozenset(stack[start:])
            del stack[start:]
            if len(group) > 1:
                groups.append(group)

    for module in imports:
        if module not in index:
            visit(module)
    return groups


def imports_of(graph: ImportGraph) -> dict[str, frozenset[str]]:
    """Return what each module imports directly."""
    return {one: frozenset(graph.find_modules_directly_imported_by(one)) for one in graph.modules}


def needed_by(graph: ImportGraph, program: str) -> frozenset[str]:
    """Return the modules that a program needs, itself among them; packages do not count."""
    needed = {program, *graph.find_upstream_modules(program)}
    return frozenset(one for one in needed if not graph.find_children(one))
