"""Adds cloud nodes to a site's Slurm: the plan, and the steps in their order.

What can fail comes before slurm.conf is touched: AWS, the controllers' Python, their credentials.
Each step may be repeated; a second apply changes nothing.
"""

from __future__ import annotations

import posixpath
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from toolkit.errors import HeadCommandFailed, NotConfirmed
from toolkit.join import (
    conflicts,
    controller_files,
    file_edits,
    include_files,
    readiness,
    slurmctld,
)
from toolkit.join.controller_files import OwnFile, digest
from toolkit.join.errors import JoinConflict, JoinError, ReconfigureRefused, SiteNotReady
from toolkit.join.runner import controllers
from toolkit.join.site import on_controller, read_if_there
from toolkit.output import plain
from toolkit.render.burst import burst_json

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from toolkit.config import ClusterConfig
    from toolkit.deploy.site_node import SiteNode
    from toolkit.deploy.stack_plan import ResourceChange, StackPlan
    from toolkit.join.aws_side import AwsSide
    from toolkit.join.conflicts import Conflict
    from toolkit.join.controller_files import SlurmUser
    from toolkit.join.file_edits import FileEdit
    from toolkit.join.include_files import GlobalSetting
    from toolkit.join.preflight import SiteCheck, SiteFinding
    from toolkit.join.runner import ControllerRunner
    from toolkit.join.site import Place, SiteFacts
    from toolkit.output import Reporter


@dataclass(frozen=True, slots=True)
class JoinPlan:
    """A plan of `toolkit join apply`, or the conflicts and findings that refuse it."""

    cluster_name: str  # the site's
    version: str  # of the site's Slurm
    edits: tuple[FileEdit, ...] = ()  # of each controller, those of the one that was read first
    settings: tuple[GlobalSetting, ...] = ()
    stack: StackPlan | None = None
    record_changes: tuple[ResourceChange, ...] = ()  # of the stack of records, which is another
    missing_images: tuple[str, ...] = ()
    conflicts: tuple[Conflict, ...] = ()
    by_hand: tuple[str, ...] = ()  # lines that a person must add first
    check: SiteCheck | None = None  # the preflight's; None: it was not asked
    skipped: frozenset[str] = frozenset()  # slugs of findings that refuse nothing

    @property
    def refusals(self) -> tuple[SiteFinding, ...]:
        """Return the preflight's errors that nobody skipped, and no conflict names."""
        known = self.skipped | {conflict.slug for conflict in self.conflicts}
        errors = self.check.errors if self.check is not None else ()
        return tuple(item for item in errors if item.slug not in known)

    @property
    def is_refused(self) -> bool:
        """Return whether apply would change nothing and fail."""
        return bool(self.conflicts or self.refusals)

    @property
    def is_empty(self) -> bool:
        """Return whether nothing would change."""
        stack = self.stack is not None and (self.stack.change_set or self.stack.changes)
        aws = stack or self.record_changes or self.missing_images
        return not (aws or self.by_hand or self._changed)

    def edits_on(self, host: str) -> tuple[FileEdit, ...]:
        """Return the edits on one controller."""
        return tuple(edit for edit in self.edits if edit.host == host)

    @property
    def _changed(self) -> tuple[FileEdit, ...]:
        """Return the edits that change something, once where controllers have the same."""
        alike = {replace(edit, host=""): edit for edit in reversed(self.edits) if edit.changes}
        return tuple(edit for edit in self.edits if edit in alike.values())

    def text(self) -> str:
        """Return the plan as text for people."""
        if self.is_refused:
            lines = [f"conflict: {conflict}" for conflict in self.conflicts]
            return "\n".join((*lines, *(item.headline for item in self.refusals)))
        lines = [f"+ image {name} (built first)" for name in self.missing_images]
        lines += [str(change) for change in (self.stack.changes if self.stack else ())]
        lines += [f"{change} (records)" for change in self.record_changes]
        lines += [f"by hand, {line}" for line in self.by_hand]
        for edit in self._changed:
            is_other = edit.host != self.edits[0].host
            lines += [f"on {edit.host}:"] if is_other else []
            lines.append(edit.diff())
        if self.by_hand or any(not edit.ours for edit in self._changed):
            lines.append(self._note_on_copies())
        if self._changed:
            lines += [
                f"~ slurmctld: {item.name}: {item.before or '(none)'} → {item.value}"
                + (f" ({item.why})" if item.why else "")
                for item in self.settings
            ]
        return "\n".join(lines) or "no changes"

    def _note_on_copies(self) -> str:
        """Return what hosts need that don't get slurm.conf from slurmctld.

        slurmd and commands end at a line that includes a file which they lack.
        """
        own = [edit.path for edit in self.edits if edit.ours and edit.after]
        names = dict.fromkeys(map(posixpath.basename, own))
        return (
            "note: a host with a slurm.conf of its own needs"
            f" {' and '.join(names)} beside it before it gets the line"
        )

    def require(self) -> None:
        """Raise JoinConflict or SiteNotReady, with every line, if apply is refused."""
        if self.conflicts:
            raise JoinConflict(plain(self.text()), next_step="mend these, then run this again")
        if self.refusals:
            slugs = dict.fromkeys(item.slug for item in self.refusals)
            skips = " ".join(f"--skip-check {slug}" for slug in slugs)
            raise SiteNotReady(
                plain(f"{self.cluster_name} is not ready for cloud nodes:\n{self.text()}"),
                next_step=f"mend these, as `toolkit join check` says; or go on with {skips}",
            )


class Join:
    """The join of one cluster.yaml, with its AWS side and the site's controllers."""

    def __init__(
        self,
        config: ClusterConfig,
        aws: AwsSide,
        report: Reporter,
        runners: Sequence[ControllerRunner] | None = None,
        *,
        skipped: Collection[str] = (),
        rule_places: Mapping[str, Place] | None = None,
    ) -> None:
        """Keep the parts.

        `skipped` has the preflight's slugs that refuse nothing, and `rule_places` the lines of
        burst rules in cluster.yaml, by partition.
        """
        self._config = config
        self._aws = aws
        self._report = report
        self.runners = tuple(runners or controllers(config.joined_site))
        self._skipped = frozenset(skipped)
        self._rule_places = rule_places or {}

    def plan(self) -> JoinPlan:
        """Return what apply would do; change nothing."""
        runner, site = self.read()
        plan = self._checked_plan(runner, site)
        if plan.is_refused:
            return plan
        self._aws.check_network()
        stack, record_changes, images = self._aws.preview(self._node(runner, site)[0])
        return replace(plan, stack=stack, record_changes=record_changes, missing_images=images)

    def apply(self, *, yes: bool) -> JoinPlan:
        """Bring AWS, the controllers and slurmctld to cluster.yaml, and wait.

        Raises JoinConflict or SiteNotReady with the site's lines, and NotConfirmed before
        slurm.conf changes.
        """
        runner, site = self.read()
        plan = self._checked_plan(runner, site)
        plan.require()
        self._confirm(plan, yes=yes)
        self._aws.check_network()
        for each in self.runners:
            slurmctld.check_python(each, self._config)
        node, user = self._node(runner, site)
        self._aws.apply(node)
        key = slurmctld.read_key(runner, site)
        with self._report.phase(f"Giving the nodes the site's {key.name}") as phase:
            phase.result("changed" if self._aws.set_key(key) else "as it was")
        self._install(site, user)
        plan = self._plan(runner, site)
        if self._write(plan) or not self._is_joined(runner):
            self._reconfigure(runner, plan)
        self._start_timers()
        return plan

    def read(self) -> tuple[ControllerRunner, SiteFacts]:
        """Read the site by the first controller that answers."""
        return readiness.read_first(self._config, self.runners)

    def own_texts(self, runner: ControllerRunner, site: SiteFacts) -> dict[str, str | None]:
        """Return the texts of our files beside slurm.conf, by path."""
        paths = file_edits.own_paths(self._config, site)
        return {path: read_if_there(runner, path) for path in paths}

    def _checked_plan(self, runner: ControllerRunner, site: SiteFacts) -> JoinPlan:
        """Return the plan with the preflight's findings."""
        plan = self._plan(runner, site)
        check = readiness.ask(self._config, runner, site, self._report)
        for item in check.errors:
            if item.slug in self._skipped:
                self._report.line(plain(f"skipped: {item.headline}"))
        return replace(plan, check=check, skipped=self._skipped)

    def _plan(self, runner: ControllerRunner, site: SiteFacts) -> JoinPlan:
        config, prices = self._config, self._aws.prices()
        bare = file_edits.without_ours(config, site)
        own = self.own_texts(runner, site)
        edits = file_edits.edits_of_join(config, site, prices, own)
        by_host = {runner.host: edits}
        for each in self.runners:
            if each.host not in by_host:
                there, own_there = on_controller(each, site), self.own_texts(each, site)
                by_host[each.host] = file_edits.edits_of_join(config, there, prices, own_there)
        return JoinPlan(
            cluster_name=site.cluster_name,
            version=site.version,
            edits=tuple(
                replace(edit, host=host) for host, edits in by_host.items() for edit in edits
            ),
            settings=include_files.global_settings(config, bare),
            conflicts=(
                *conflicts.conflicts(config, bare),
                *conflicts.burst_rules(config, bare, self._rule_places),
                *conflicts.lost_partitions(config, own[file_edits.own_paths(config, site)[0]]),
            ),
            by_hand=tuple(
                line if host == runner.host else f"{line} (on {host})"
                for host, edits in by_host.items()
                for line in file_edits.lines_by_hand(config, site, edits)
            ),
        )

    def _confirm(self, plan: JoinPlan, *, yes: bool) -> None:
        changed = [edit.path for edit in plan.edits if edit.changes and not edit.ours]
        if changed and not yes:
            raise NotConfirmed(
                f"this adds one line to {' and '.join(changed)}:\n{plan.text()}",
                next_step="add --yes; or set site.include: by-hand, and add it yourself",
            )

    def _node(self, runner: ControllerRunner, site: SiteFacts) -> tuple[SiteNode, SlurmUser]:
        user = slurmctld.slurm_user(runner, site)
        return slurmctld.site_node(runner, site, user), user

    def _install(self, site: SiteFacts, user: SlurmUser) -> None:
        """Put programs and settings on each controller, and try the credentials."""
        config, python = self._config, self._config.joined_site.python
        bare = file_edits.without_ours(config, site)
        folder = controller_files.governor_folder(config, site)
        files = [
            *controller_files.programs(python, user, folder, self._aws.records_bucket),
            *controller_files.settings(
                user,
                burst_json=burst_json(
                    config, self._aws.facts(site.cluster_name, folder), self._aws.prices()
                ),
                site_text=controller_files.site_json(config, include_files.site_programs(bare)),
                aws_text=controller_files.aws_config(config, self._aws.controller_role()),
            ),
        ]
        trees = [posixpath.dirname(controller_files.LIB), controller_files.BIN]
        for runner in self.runners:
            with self._report.phase(f"Installing our programs on {runner.host}") as phase:
                changed = controller_files.put(
                    runner, python, files, user=user, governor=folder, trees=trees
                )
                slurmctld.check_credentials(runner, config, user)
                phase.result(f"{len(changed)} files changed" if changed else "as they were")

    def _write(self, plan: JoinPlan) -> bool:
        """Write our files and the lines; return whether any changed.

        Raises JoinError for a line that a person must add first.
        """
        changed = [self._put(each, plan, ours=True) for each in self.runners]
        if plan.by_hand:
            raise JoinError(
                "slurm.conf does not include our nodes yet",
                next_step=f"add {', and '.join(plan.by_hand)}; then run this again",
            )
        changed += [self._put(each, plan, ours=False) for each in self.runners]
        return any(changed)

    def _put(self, runner: ControllerRunner, plan: JoinPlan, *, ours: bool) -> tuple[str, ...]:
        """Write our files on a controller, or its lines."""
        edits = [edit for edit in plan.edits_on(runner.host) if edit.ours is ours]
        return controller_files.put(runner, self._config.joined_site.python, _files(edits))

    def _is_joined(self, runner: ControllerRunner) -> bool:
        scontrol = f"{self._config.joined_site.slurm_bin}/scontrol"
        try:
            for name in self._config.partitions:
                runner.run([scontrol, "show", "partition", name])
        except HeadCommandFailed:
            return False
        return True

    def _reconfigure(self, runner: ControllerRunner, plan: JoinPlan) -> None:
        """Have slurmctld take the change.

        If it does not, the files are put back.
        """
        with self._report.phase(f"Reconfiguring slurmctld of {plan.cluster_name}"):
            try:
                slurmctld.reconfigure(runner, self._config, joined=True)
            except ReconfigureRefused:
                for each in self.runners:
                    self._put_back(each, plan)
                raise

    def _put_back(self, runner: ControllerRunner, plan: JoinPlan) -> None:
        """Give a controller its files as they were, the lines first."""
        before = [
            replace(edit, before=edit.after, after=edit.before)
            for edit in reversed(plan.edits_on(runner.host))
        ]
        absent = [edit.path for edit in before if edit.after is None]
        python = self._config.joined_site.python
        controller_files.put(runner, python, _files(before), absent=absent)

    def _start_timers(self) -> None:
        for runner in self.runners:
            runner.run(["/usr/bin/systemctl", "daemon-reload"])
            runner.run(["/usr/bin/systemctl", "enable", "--now", *controller_files.TIMERS])


def _files(edits: Iterable[FileEdit]) -> list[OwnFile]:
    """Return the files to write.

    A file of the site keeps its mode and owner.
    """
    return [
        OwnFile(edit.path, edit.after.encode(), mode=None, was=digest(edit.before))
        if not edit.ours
        else OwnFile(edit.path, edit.after.encode())
        for edit in edits
        if edit.after is not None
    ]
