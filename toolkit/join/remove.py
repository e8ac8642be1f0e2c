"""Takes cloud nodes out of a site's Slurm: jobs, nodes, lines, files, and the AWS side last.

Each step may be repeated, so the next remove finishes one that was cut off.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from toolkit.errors import HeadCommandFailed, NotConfirmed
from toolkit.join import controller_files, file_edits, include_files, slurmctld
from toolkit.join.controller_files import (
    ROOTS,
    TIMERS,
    UNIT_FOLDER,
    UNITS,
    OwnFile,
    governor_folder,
    put,
)
from toolkit.join.errors import JoinError, PartitionInUse
from toolkit.join.site import on_controller, read_if_there
from toolkit.polling import Wait

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from toolkit.config import ClusterConfig
    from toolkit.deploy.destroy import Destroyer
    from toolkit.join.apply import Join
    from toolkit.join.file_edits import FileEdit
    from toolkit.join.runner import ControllerRunner
    from toolkit.join.site import SiteFacts
    from toolkit.output import Reporter

RUNNING: Final = "RUNNING,SUSPENDED,CONFIGURING,COMPLETING,STAGE_OUT,STOPPED"
JOBS_SECONDS: Final = 180.0
"""A job that is cancelled has KillWait and its epilog's time."""
REASON: Final = "toolkit: the join is removed"


@dataclass(frozen=True, slots=True)
class WaitingJob:
    """A job of one of our partitions that has not ended."""

    id: str
    partitions: tuple[str, ...]
    """All that it may run in, while it waits."""

    def others(self, own: set[str]) -> tuple[str, ...]:
        """Return the site's partitions among them."""
        return tuple(name for name in self.partitions if name not in own)


class Removal:
    """The removal of one join."""

    def __init__(
        self,
        config: ClusterConfig,
        join: Join,
        destroyer: Destroyer,
        report: Reporter,
        *,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._config = config
        self._join = join
        self._destroyer = destroyer
        self._report = report
        self._sleep = sleep
        self._clock = clock

    def preview(self, *, with_records: bool = False) -> str:
        """Return what remove would do, as text; change nothing."""
        runner, site = self._join.read()
        jobs = self._jobs(runner)
        own = set(self._config.partitions)
        lines = [
            f"- job {job.id}: cancelled"
            if not job.others(own)
            else f"~ job {job.id}: only in {','.join(job.others(own))}"
            for job in jobs
        ]
        lines += [edit.diff() for edit in self._edits(runner, site) if edit.changes]
        inventory = self._destroyer.inventory(with_images=False, with_backups=with_records)
        if not inventory.is_empty:
            lines.append(inventory.text())
        lines += [f"- {path} on each controller" for path in ROOTS]
        if inventory.backup_bucket and not with_records:
            lines.append(
                f"kept: {inventory.records} records of jobs, instances and prices: `toolkit report`"
                " reads them (toolkit join remove --records deletes them)"
            )
        return "\n".join(lines)

    def remove(self, *, yes: bool, with_records: bool = False) -> None:
        """Remove the join, and wait until nothing of it is left.

        The records stay, unless `with_records` is set.
        """
        runner, site = self._join.read()
        if not yes:
            raise NotConfirmed(
                f"this takes {self._config.cluster} out of {site.cluster_name}:"
                f"\n{self.preview(with_records=with_records)}",
                next_step="confirm with --yes",
            )
        for each in self._join.runners:
            _stop_timers(each)
        self._empty_nodes(runner)
        jobs = self._jobs_to_spare(runner, site)
        if jobs:
            self._keep_partitions(runner, site, jobs)
        else:
            self._take_out(runner, site)
        self._destroyer.destroy(with_images=False, with_backups=with_records)
        with self._report.phase("Deleting our files on the controllers"):
            for each in self._join.runners:
                units = [f"{UNIT_FOLDER}/{name}" for name in UNITS]
                folder = governor_folder(self._config, site)
                absent = [*units, folder, *ROOTS]
                put(each, self._config.joined_site.python, absent=absent)
                each.run(["/usr/bin/systemctl", "daemon-reload"])
        if jobs:
            raise PartitionInUse(
                f"the line in slurm.conf stays, with our partitions inactive: {len(jobs)} running"
                " jobs may name them, and slurmctld would fail these",
                next_step="run `toolkit join remove --yes` again when they have ended",
            )

    def _jobs_to_spare(self, runner: ControllerRunner, site: SiteFacts) -> tuple[str, ...]:
        """Return the running jobs that may name a partition of ours.

        squeue tells of a running job only the partition that it runs in. After the first remove,
        these are the jobs that ran then.
        """
        path = file_edits.own_paths(self._config, site)[0]
        text = self._join.own_texts(runner, site)[path]
        if text is None:
            return ()
        argv = [f"{self._config.joined_site.slurm_bin}/squeue", "--noheader", "--format=%A"]
        running = runner.run([*argv, f"--states={RUNNING}"]).split()
        kept = include_files.jobs_of_kept_partitions(text)
        return tuple(job for job in running if kept is None or job in kept)

    def _keep_partitions(
        self, runner: ControllerRunner, site: SiteFacts, jobs: tuple[str, ...]
    ) -> None:
        """Leave our partitions to slurmctld, without nodes and programs of ours."""
        path = file_edits.own_paths(self._config, site)[0]
        text = include_files.kept_partitions(self._config, jobs)
        with self._report.phase(f"Reconfiguring slurmctld of {site.cluster_name}"):
            for each in self._join.runners:
                file = OwnFile(path, text.encode())
                put(each, self._config.joined_site.python, [file])
            slurmctld.reconfigure(runner, self._config, joined=True)

    def _empty_nodes(self, runner: ControllerRunner) -> None:
        """Drain our nodes, and end or move what runs and waits there."""
        site = self._config.joined_site
        nodes = ",".join(self._config.nodes(pool) for pool in self._config.pools)
        own = set(self._config.partitions)
        with self._report.phase("Draining the cloud nodes") as phase:
            jobs = self._jobs(runner)
            if self._knows_nodes(runner, nodes):
                self._scontrol(runner, f"nodename={nodes}", "state=drain", f"reason={REASON}")
            for job in jobs:
                others = job.others(own)
                if others:
                    self._scontrol(runner, f"jobid={job.id}", f"partition={','.join(others)}")
                else:
                    runner.run([f"{site.slurm_bin}/scancel", job.id])
            wait = Wait(JOBS_SECONDS, self._sleep, self._clock)
            while left := self._jobs(runner):
                if wait.is_over:
                    raise JoinError(
                        f"these jobs do not end: {', '.join(job.id for job in left)}",
                        next_step="look at their nodes, then run this again",
                    )
                wait.pause()
            phase.result(f"{len(jobs)} jobs")

    def _take_out(self, runner: ControllerRunner, site: SiteFacts) -> None:
        """Take the lines out, and have slurmctld forget our nodes."""
        edits = {each: self._edits(each, site) for each in self._join.runners}
        python = self._config.joined_site.python
        with self._report.phase(f"Reconfiguring slurmctld of {site.cluster_name}"):
            for each, own_edits in edits.items():
                files, new_files = _changed_files(own_edits)
                put(each, python, files, absent=new_files)
            slurmctld.reconfigure(runner, self._config, joined=False)
            for each, own_edits in edits.items():
                gone = [edit.path for edit in own_edits if edit.ours and edit.after is None]
                put(each, python, absent=gone)
        emptied = dict.fromkeys(
            edit.path
            for own_edits in edits.values()
            for edit in own_edits
            if edit.ours and edit.after is not None
        )
        if emptied:
            raise JoinError(
                f"a line that a person wrote includes {' and '.join(emptied)}, which is empty now",
                next_step="delete the line, then run this again",
            )

    def _edits(self, runner: ControllerRunner, site: SiteFacts) -> tuple[FileEdit, ...]:
        there, own = on_controller(runner, site), self._join.own_texts(runner, site)
        return file_edits.edits_of_removal(self._config, there, own)

    def _jobs(self, runner: ControllerRunner) -> list[WaitingJob]:
        """Return the jobs of our partitions, as far as slurmctld has these."""
        site, jobs = self._config.joined_site, {}
        for name in self._config.partitions:
            argv = [f"{site.slurm_bin}/squeue", "--noheader", "--format=%i|%P"]
            try:
                text = runner.run([*argv, f"--partition={name}"])
            except HeadCommandFailed:
                continue
            for line in text.splitlines():
                number, _, partitions = line.strip().partition("|")
                jobs[number] = WaitingJob(number, tuple(partitions.split(",")))
        return list(jobs.values())

    def _knows_nodes(self, runner: ControllerRunner, nodes: str) -> bool:
        site = self._config.joined_site
        try:
            runner.run([f"{site.slurm_bin}/scontrol", "show", "nodes", nodes])
        except HeadCommandFailed:
            return False
        return True

    def _scontrol(self, runner: ControllerRunner, *words: str) -> None:
        runner.run([f"{self._config.joined_site.slurm_bin}/scontrol", "update", *words])


def _changed_files(edits: Iterable[FileEdit]) -> tuple[list[OwnFile], list[str]]:
    """Return a controller's files without our line, and the site's to delete."""
    changed = [edit for edit in edits if edit.changes]
    files = [
        OwnFile(edit.path, edit.after.encode(), mode=None, was=controller_files.digest(edit.before))
        for edit in changed
        if edit.after is not None
    ]
    return files, [edit.path for edit in changed if edit.after is None and not edit.ours]


def _stop_timers(runner: ControllerRunner) -> None:
    """Stop reconcile and the burst governor.

    Neither may act on half a removal. Their timers may be gone already.
    """
    for timer in TIMERS:
        if read_if_there(runner, f"{UNIT_FOLDER}/{timer}") is not None:
            runner.run(["/usr/bin/systemctl", "disable", "--now", timer])
