"""Tells jobs what became of their nodes: a job at a time, with some calls each."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from slurmplugins.errors import SlurmRefused, SlurmUnreachable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from slurmplugins.model.launch import Failure
    from slurmplugins.slurm.port import Slurm
    from slurmplugins.system.logger import Log


class Teller:
    """Ends with the first call that slurmctld does not answer: hundreds may be left."""

    def __init__(self, slurm: Slurm, log: Log) -> None:
        self._slurm = slurm
        self._log = log

    def failures(self, failures: Sequence[Failure]) -> frozenset[int]:
        """Tell jobs whose nodes were given back why, and hold those that would only fail again.
        Returns the jobs that Slurm holds now.
        """
        held: set[int] = set()
        self.all(
            {
                item.job: partial(self._failed, item.job, item, held)
                for item in failures
                if item.job is not None
            }
        )
        return frozenset(held)

    def all(self, errands: Mapping[int, Callable[[], None]]) -> None:
        """Each job's errand, which may raise SlurmUnreachable."""
        left = list(errands)
        try:
            for job, errand in errands.items():
                errand()
                left.remove(job)
        except SlurmUnreachable as error:
            self._log.warning("jobs not told", jobs=left, message=error.message)

    def comment(self, job: int, text: str) -> None:
        """Raises SlurmUnreachable."""
        try:
            self._slurm.comment(job, text)
        except SlurmRefused as error:
            self._log.warning("comment failed", job=job, message=error.message)

    def _failed(self, job: int, failure: Failure, held: set[int]) -> None:
        """After its nodes are down, so that the job is back in the queue, where it can be held.
        Raises SlurmUnreachable.
        """
        text = f"{failure.reason} {failure.message}"
        if failure.hold:
            try:
                self._slurm.hold(job)
                held.add(job)
                text = f"{failure.reason} held, release when mended: {failure.message}"
            except SlurmRefused as error:  # not a batch job: it has ended with its nodes
                self._log.warning("hold failed", job=job, message=error.message)
        self.comment(job, text)
