"""The sections of cluster.yaml on limits of accounts and users, as slurmdbd holds them."""

# No `from __future__ import annotations` here: pydantic reads the annotations at import.

from typing import Annotated

from pydantic import AfterValidator, Field

from toolkit.config import types
from toolkit.config.classes import Amount, ClassCaps, Count, TresName
from toolkit.config.section import Section


def _some_time(value: str) -> str:
    if not set(value) & set("123456789"):
        raise ValueError("expected at least a minute")
    return value


LimitTime = Annotated[str, Field(pattern=types.LIMIT_TIME), AfterValidator(_some_time)]


class UserCaps(Section):
    """The most jobs of each user that may run or wait at one time."""

    jobs: Count | None = None
    """Running jobs."""
    submit: Count | None = None
    """Running and waiting jobs."""


class AccountLimits(Section):
    """The most that jobs of an account may take. What is not named stays as an admin set it."""

    total: ClassCaps = ClassCaps()
    """All jobs of the account and of accounts below it together."""
    per_user: UserCaps = UserCaps()
    """Each user of these accounts. A user's own limit, or that of an account below, comes first."""
    per_job: dict[TresName, Amount] = Field(default={})
    """TRES of one job."""
    max_time: LimitTime | None = None
    """The longest time limit of a job. Seconds are rounded up to a minute."""


class UserLimits(ClassCaps):
    """The most that a user's jobs may take in each of the user's accounts."""

    per_job: dict[TresName, Amount] = Field(default={})
    """TRES of one job."""
    max_time: LimitTime | None = None
    """The longest time limit of a job. Seconds are rounded up to a minute."""
