"""Slurm job ids of this checkout's tests.

A job's port follows from its id, and another checkout's tests may run at the same time.
"""

import zlib
from pathlib import Path

_REPO = Path(__file__).resolve().parents[3]
_PER_CHECKOUT = 20
_JOBS_BEFORE = _PER_CHECKOUT * (zlib.crc32(str(_REPO).encode()) % 500)


def job_id(number: int) -> str:
    """Return the Slurm id of a job, numbered from 1 to 20.

    Test files run at the same time, so each has numbers of its own.
    """
    return str(_JOBS_BEFORE + number)
