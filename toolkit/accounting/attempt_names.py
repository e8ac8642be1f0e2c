"""The names in a report: projects that accounts stand for, and users that are left out."""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from toolkit.accounting.attempts import Attempt
    from toolkit.accounting.report import Report

HIDDEN_USER = "(user)"
"""Stands for each user who is not named."""


class Names(StrEnum):
    """The people whose names a document has."""

    NONE = "none"
    OWN = "own"
    ALL = "all"


def with_projects(report: Report, projects: Mapping[str, str]) -> Report:
    """Return the report; a job without a project has its account's."""
    return replace(report, attempts=projects_of(report.attempts, projects))


def projects_of(
    attempts: Mapping[int, Attempt], projects: Mapping[str, str]
) -> Mapping[int, Attempt]:
    """Return the attempts; one without a project has its account's."""
    return {
        key: item if item.project else replace(item, project=projects.get(item.account, ""))
        for key, item in attempts.items()
    }


def with_names(report: Report, names: Names, own: str) -> Report:
    """Return the report with the names of some users left out.

    `own` is the user who stays in it with `Names.OWN`. With a user's name go the names of the
    jobs, which the user chose. No amount changes.
    """
    if names is Names.ALL:
        return report

    def kept(user: str) -> bool:
        return names is Names.OWN and user == own

    attempts = {
        key: item if kept(item.user) else replace(item.without_words(), user=HIDDEN_USER)
        for key, item in report.attempts.items()
    }
    part = report.period
    if part is not None:
        corrections = tuple(
            item if kept(item.user) or not item.user else replace(item, user=HIDDEN_USER)
            for item in part.corrections
        )
        part = replace(part, corrections=corrections)
    return replace(report, attempts=attempts, period=part)
