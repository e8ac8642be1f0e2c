"""Applies slurm.settings of cluster.yaml; refuses values that would be several settings."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from toolkit.errors import RenderError
from toolkit.render import options

if TYPE_CHECKING:
    from collections.abc import Iterable

    from toolkit.render.section import SettingsSection
    from toolkit.render.versions import SlurmVersion

OMIT: Final = "omit"
"""A value that leaves our own setting out, so that Slurm's default holds."""
SITE_TITLE: Final = "From cluster.yaml"

_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9]{1,60}", re.ASCII)
# slurm.conf has no quoting: # starts a comment, a backslash joins the next line. Line ends are not
# printable characters in Unicode's sense, and all unprintable characters are refused.
_VALUE: Final = re.compile(r"[^ #\\](?:[^#\\]*[^ #\\])?")
_SECOND_SETTING: Final = re.compile(r"\s[A-Za-z]\w*=")
# These start lines of their own kind, or read another file.
_NOT_SETTINGS: Final = frozenset(
    {"include", "nodename", "nodeset", "partitionname", "downnodes", "frontendname", "switchname"}
)


def apply_overrides(
    sections: tuple[SettingsSection, ...],
    overrides: Iterable[tuple[str, str]],
    version: SlurmVersion,
) -> tuple[SettingsSection, ...]:
    """Return the sections with the overrides applied.

    An override replaces our value, or omits it; other settings get a section of their
    own. Raises RenderError.
    """
    remaining: dict[str, tuple[str, str]] = {}
    for name, value in overrides:
        _check(name, value, version)
        if name.lower() in remaining:
            raise RenderError(f"slurm.settings: {name} is set twice")
        remaining[name.lower()] = (name, value)
    merged_sections = tuple(_merge(section, remaining) for section in sections)
    other_rows = tuple((name, value) for name, value in remaining.values() if value != OMIT)
    if not other_rows:
        return merged_sections
    return (*merged_sections, replace(sections[0], title=SITE_TITLE, rows=other_rows))


def _merge(section: SettingsSection, remaining: dict[str, tuple[str, str]]) -> SettingsSection:
    """Apply the section's overrides, and remove them from `remaining`."""
    rows = []
    for name, own_value in section.rows:
        _, value = remaining.pop(name.lower(), (name, own_value))
        if value != OMIT:
            rows.append((name, value))
    return replace(section, rows=tuple(rows))


def _check(name: str, value: str, version: SlurmVersion) -> None:
    if not _NAME.fullmatch(name) or name.lower() in _NOT_SETTINGS:
        raise RenderError(f"slurm.settings: {name!r} is not a global setting of slurm.conf")
    is_one_value = value.isprintable() and _VALUE.fullmatch(value)
    if not is_one_value or _SECOND_SETTING.search(value):
        raise RenderError(
            f"slurm.settings.{name}: expected one value on one line, without # or backslash"
        )
    for word in ("", *value.split(",")):
        reason = options.unsupported_reason(name, word, version)
        if reason is not None:
            raise RenderError(f"slurm.settings.{name}: {reason}")
