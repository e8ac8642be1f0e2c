"""Finds the line of a key in a YAML file, for messages about it."""

from __future__ import annotations

import re
from datetime import date
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from toolkit.errors import ConfigInvalid, Problem

if TYPE_CHECKING:
    from pathlib import Path

    from toolkit.config.raw import KeyPath

_DAY = re.compile(r"\b\d{4}-\d{2}-\d{2}\b", re.ASCII)


def read_tree(text: str, source: str) -> CommentedMap:
    """Parse YAML and keep its lines. Raises ConfigInvalid, which names `source`.

    The same text gives the same tree, so callers leave it as it is.
    """
    try:
        tree = _tree(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark is not None else 1
        message = str(error.problem or error.context).split("\n")[0]
        raise ConfigInvalid(source, [Problem(line, "", f"not YAML: {message}")]) from error
    except ValueError as error:
        # A day that no calendar has: ruamel constructs it before anybody can check it.
        line = _line_of_wrong_day(text)
        raise ConfigInvalid(source, [Problem(line, "", f"not a day: {error}")]) from error
    except YAMLError as error:
        raise ConfigInvalid(source, [Problem(1, "", f"not YAML: {error}")]) from error
    if not isinstance(tree, CommentedMap):
        raise ConfigInvalid(source, [Problem(1, "", "expected settings such as `cluster: demo`")])
    return tree


# A deploy reads cluster.yaml to parse it, for its days, and to say where a problem is.
@lru_cache(maxsize=2)
def _tree(text: str) -> Any:
    return YAML(typ="rt").load(text)


def _line_of_wrong_day(text: str) -> int:
    """Return the line of the first day that does not exist."""
    for number, line in enumerate(text.splitlines(), start=1):
        for day in _DAY.findall(line):
            try:
                date.fromisoformat(day)
            except ValueError:
                return number
    return 1


def read_file(path: Path) -> CommentedMap:
    """Parse a file that was loaded before."""
    return read_tree(path.read_text(encoding="utf-8"), str(path))


def problem_at(tree: CommentedMap, key_path: KeyPath, message: str) -> Problem:
    """Return the problem of a key, with its line."""
    return Problem(line_of(tree, key_path), path_text(key_path), message)


def key_text(key: object) -> str:
    """Return a key as the file has it, also `null` and `true`."""
    return "null" if key is None else str(key).lower() if isinstance(key, bool) else str(key)


def line_of(tree: CommentedMap, key_path: KeyPath) -> int:
    """Return the line of the deepest existing part of a path.

    Paths to missing keys end before the file does.
    """
    node: Any = tree
    line = tree.lc.line if tree.lc.line is not None else 0
    for part in key_path:
        step: Any = part
        if isinstance(node, CommentedMap):
            step = next((key for key in node if key_text(key) == part), part)
        if isinstance(node, CommentedMap) and step in node:
            line = node.lc.key(step)[0]
        elif isinstance(node, CommentedSeq) and isinstance(step, int) and step < len(node):
            line = node.lc.item(step)[0]
        else:
            break
        node = node[step]
    return line + 1


def path_text(key_path: KeyPath) -> str:
    """Return a path as messages write it, `pools.gpu.offerings[0].type`."""
    text = ""
    for step in key_path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text
