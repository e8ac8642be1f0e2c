"""slurm.settings of cluster.yaml: raw settings, kept from saying more than one setting each."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from toolkit.errors import RenderError
from toolkit.render import options

if TYPE_CHECKING:
    from collections.abc import Iterable

    from toolkit.render.section import Section
    from toolkit.render.versions import SlurmVersion

OMIT: Final = "omit"
"""As a value: leave our own setting out, so that Slurm's default holds."""
SITE_TITLE: Final = "From cluster.yaml"

_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9]{1,60}", re.ASCII)
# slurm.conf has no quoting: # starts a comment, a backslash joins the next line. What ends a line
# isn't printable, in Unicode's sense, and is refused with the rest of its kind.
_VALUE: Final = re.compile(r"[^ #\\](?:[^#\\]*[^ #\\])?")
_SECOND_SETTING: Final = re.compile(r"\s[A-Za-z]\w*=")
# They start lines of their own kind, or read another file.
_NOT_SETTINGS: Final = frozenset(
    {"include", "nodename", "nodeset", "partitionname", "downnodes", "frontendname", "switchname"}
)


def apply_overrides(
    sections: tuple[Section, ...], overrides: Iterable[tuple[str, str]], version: SlurmVersion
) -> tuple[Section, ...]:
    """Our sections with their values replaced or left out, and the rest in a section of its own."""
    wanted: dict[str, tuple[str, str]] = {}
    for name, value in overrides:
        _check(name, value, version)
        if name.lower() in wanted:
            raise RenderError(f"slurm.settings: {name} is set twice")
        wanted[name.lower()] = (name, value)
    merged = tuple(_merge(section, wanted) for section in sections)
    rest = tuple((name, value) for name, value in wanted.values() if value != OMIT)
    if not rest:
        return merged
    return (*merged, replace(sections[0], title=SITE_TITLE, rows=rest))


def _merge(section: Section, wanted: dict[str, tuple[str, str]]) -> Section:
    """Takes from `wanted` what this section states itself."""
    rows = []
    for name, ours in section.rows:
        _, value = wanted.pop(name.lower(), (name, ours))
        if value != OMIT:
            rows.append((name, value))
    return replace(section, rows=tuple(rows))


def _check(name: str, value: str, version: SlurmVersion) -> None:
    if not _NAME.fullmatch(name) or name.lower() in _NOT_SETTINGS:
        raise RenderError(f"slurm.settings: {name!r} is not a global setting of slurm.conf")
    whole = value.isprintable() and _VALUE.fullmatch(value)
    if not whole or _SECOND_SETTING.search(value):
        raise RenderError(
            f"slurm.settings.{name}: expected one value on one line, without # or backslash"
        )
    for word in ("", *value.split(",")):
        wrong = options.problem(name, word, version)
        if wrong is not None:
            raise RenderError(f"slurm.settings.{name}: {wrong}")
