"""A titled group of settings in slurm.conf."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SettingsSection:
    """Settings that belong together, in order, under a title."""

    title: str
    rows: tuple[tuple[str, str], ...]
