"""Turns the text of cluster.yaml into a `ClusterConfig`, or finds every problem in it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from pydantic import BaseModel, ValidationError
from ruamel.yaml.comments import CommentedMap, CommentedSeq

from toolkit.config.base_image import with_local_defaults
from toolkit.config.budgets import dated_findings
from toolkit.config.checks import cross_check
from toolkit.config.hardware import hardware_checks
from toolkit.config.model import ClusterConfig
from toolkit.config.names import name_checks
from toolkit.config.places import key_text, path_text, problem_at, read_tree
from toolkit.config.site import join_checks, with_join_defaults
from toolkit.config.suggestions import suggestion
from toolkit.config.types import WORDS
from toolkit.errors import ConfigInvalid, ConfigNotFound, Problem

if TYPE_CHECKING:
    from datetime import datetime

    from pydantic_core import ErrorDetails

    from toolkit.config.raw import KeyPath

# A cluster.yaml of ten thousand users is under a megabyte; a larger file is given by mistake.
MAX_BYTES = 4 * 1024 * 1024


def load(path: Path | str) -> ClusterConfig:
    """Read and check one file.

    Raises ConfigNotFound, or ConfigInvalid with all problems, each with its line.
    """
    path = Path(path)
    try:
        if path.stat().st_size > MAX_BYTES:
            raise ConfigInvalid(str(path), [Problem(1, "", "expected less than 4 MiB")])
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigNotFound(
            f"can't read {path}: {error.strerror}",
            next_step="give --config FILE, or write one with `toolkit config init`",
        ) from error
    except UnicodeDecodeError as error:
        raise ConfigInvalid(str(path), [Problem(1, "", "expected UTF-8 text")]) from error
    return parse(text, source=str(path))


def load_dated(path: Path, now: datetime) -> ClusterConfig:
    """Read and check one file, also by the date.

    Raises as `load` does, and ConfigInvalid for grants that ended or have not begun.
    """
    config = load(path)
    tree = read_tree(path.read_text(encoding="utf-8"), str(path))
    problems = [problem_at(tree, *finding) for finding in dated_findings(_plain(tree), now)]
    if problems:
        raise ConfigInvalid(str(path), problems)
    return config


def parse(text: str, *, source: str = "cluster.yaml") -> ClusterConfig:
    """Check the text of a cluster.yaml.

    `source` is the name of the file in messages. Raises ConfigInvalid with all problems.
    """
    tree = read_tree(text, source)
    written = _plain(tree)
    raw = with_join_defaults(with_local_defaults(written))
    # Where one of these names a place, the model's problem of that place says less: it is dropped.
    findings = [*name_checks(raw), *hardware_checks(raw), *join_checks(written)]
    places = {path_text(key_path) for key_path, _ in findings}
    problems = [
        problem_at(tree, key_path, message) for key_path, message in (*findings, *cross_check(raw))
    ]
    config = None
    try:
        # Through JSON, where strict still turns text into addresses and lists into tuples.
        config = ClusterConfig.model_validate_json(json.dumps(raw, default=str))
    except ValidationError as error:
        details = (_problem(tree, detail) for detail in _distinct(error.errors()))
        problems.extend(problem for problem in details if problem.path not in places)
    if problems or config is None:
        raise ConfigInvalid(source, problems)
    return config


def _plain(value: Any) -> Any:
    if isinstance(value, CommentedMap):
        return {key_text(key): _plain(item) for key, item in value.items()}
    if isinstance(value, CommentedSeq):
        return [_plain(item) for item in value]
    if isinstance(value, bool) or value is None:
        return value
    for kind in (int, float, str):
        if isinstance(value, kind):
            return kind(value)
    return str(value)


def _distinct(details: list[ErrorDetails]) -> list[ErrorDetails]:
    """Return one problem for each place.

    A union reports each of its members, and a person needs one of them.
    """
    details_by_path: dict[KeyPath, ErrorDetails] = {}
    for detail in details:
        if detail["type"] == "too_short" and detail["input"]:
            continue  # its items are wrong, and they are reported
        key_path = tuple(step for step in detail["loc"] if not _is_union_branch(step))
        details_by_path.setdefault(key_path, {**detail, "loc": key_path})
    return list(details_by_path.values())


def _is_union_branch(step: str | int) -> bool:
    return isinstance(step, str) and (
        step.startswith(("constrained-", "function-")) or step in {"int", "str"}
    )


def _problem(tree: CommentedMap, detail: ErrorDetails) -> Problem:
    key_path = detail["loc"]
    kind = detail["type"]
    if kind == "extra_forbidden":
        field_names = _fields_at(key_path[:-1])
        message = f"unknown key{suggestion(str(key_path[-1]), field_names)}"
    elif kind == "missing":
        message = "missing; expected here"
    elif key_path and key_path[-1] == "[key]":
        key_path = key_path[:-1]
        message = f"not a valid name: {_expected(detail)}"
    else:
        message = f"{_expected(detail)}, found {_excerpt(detail['input'])}"
    return problem_at(tree, key_path, message)


def _expected(detail: ErrorDetails) -> str:
    context = detail.get("ctx", {})
    if detail["type"] == "string_pattern_mismatch":
        return f"expected {WORDS.get(context['pattern'], context['pattern'])}"
    if detail["type"] == "value_error":
        error_text = str(context["error"])
        # This text is from ipaddress; the others are from this package and say what they expect.
        prefix = "expected a network's first address: " if "host bits" in error_text else ""
        return f"{prefix}{error_text}"
    message = detail["msg"]
    if detail["type"] == "literal_error" and isinstance(detail["input"], float):
        message += " (in quotes)"
    for prefix in ("Input should be ", "Value should have "):
        message = message.replace(prefix, "expected ")
    message = message.replace("expected a valid string", "expected text (put it in quotes)")
    return message[:1].lower() + message[1:]


def _excerpt(value: object) -> str:
    text = json.dumps(value, default=str, ensure_ascii=False)
    limit = 60
    return text if len(text) <= limit else f"{text[:limit]}…"


def _fields_at(key_path: KeyPath) -> list[str]:
    """Return the keys that the model knows at a path.

    An unknown key may be a misspelling of one of them.
    """
    model: Any = ClusterConfig
    for step in key_path:
        if isinstance(model, type) and issubclass(model, BaseModel):
            field = model.model_fields.get(str(step))
            model = field.annotation if field is not None else None
        else:
            model = _item_type(model)
    return list(model.model_fields) if hasattr(model, "model_fields") else []


def _item_type(annotation: Any) -> Any:
    for argument in reversed(get_args(annotation)):
        if isinstance(argument, type) and issubclass(argument, BaseModel):
            return argument
    return None
