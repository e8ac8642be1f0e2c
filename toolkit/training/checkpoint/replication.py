"""Copy checkpoints to tiers after their commit, and fetch them back when they are needed."""

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from toolkit.training.attempt.fencing import Fence
from toolkit.training.checkpoint import manifest
from toolkit.training.checkpoint.background_save import Urgency
from toolkit.training.checkpoint.collective import (
    all_ranks,
    all_ranks_local,
    rank0_only,
    unreadable_on_error,
)
from toolkit.training.checkpoint.manifest import MANIFEST
from toolkit.training.checkpoint.tier import Tier
from toolkit.training.distributed.process_group import ProcessGroup
from toolkit.training.errors import CheckpointFailed
from toolkit.training.io.durable_files import fsync_directory, path_exists, write_atomic
from toolkit.training.run_folder.checkpoint_names import save_number

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PushResult:
    """The result of filling the tiers."""

    problems: tuple[str, ...]  # one message for each tier that failed
    wait_seconds: float  # seconds for the tiers that a stop waits for


class Replication:
    """The tiers of one checkpointer. Each keeps as many checkpoints as the first place does."""

    def __init__(
        self,
        tiers: Sequence[Tier],
        keep: int,
        fence: Fence,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.tiers, self._keep, self._fence, self._clock = tuple(tiers), keep, fence, clock
        self._unlisted_tiers = list(self.tiers)
        self._last_number = 0

    def last_number(self, urgency: Urgency) -> int:
        """Return the highest number of a save in the tiers.

        Unreachable tiers are skipped: a save needs none. Copies that were only begun count, for
        under their name a tier may have other bytes. A tier is asked once. After that it holds only
        what this run put there.
        """
        for tier in tuple(self._unlisted_tiers):
            try:
                self._note_numbers(_unless_urgent(tier, urgency, partial(_list_begun, tier))())
            except Exception:  # noqa: BLE001, S112  # an unreachable tier must not prevent a save
                continue
            self._unlisted_tiers.remove(tier)
        return self._last_number

    def list_names(self, local_names: Collection[str]) -> list[str]:
        """Return every checkpoint in `local_names` or in a tier.

        The last one saved comes first. A tier that is away raises an error only when nothing is
        known without it.
        """
        names = set(local_names)
        for tier in self.tiers:
            try:
                names.update(self._note_numbers(tier.names()))
            except Exception:
                if not names:
                    raise
        # While the tier was away, two filesystems may have given one number. The step decides then.
        return sorted(names, key=lambda name: (save_number(name), name), reverse=True)

    def push(
        self,
        world: ProcessGroup,
        folder: Path,
        distrusted_names: Collection[str],
        urgency: Urgency,
    ) -> PushResult:
        """Fill the tiers. A tier that fails costs only its copy.

        If it is urgent, only the tiers that outlive the notice are filled. A notice that comes on
        the way ends the work for the others.
        """
        self._note_numbers([folder.name])
        problems, wait_seconds = [], 0.0
        for tier in self.tiers:
            start = self._clock()
            try:
                self._fill(world, folder, tier, distrusted_names, urgency)
            except CheckpointFailed as error:
                problems.append(f"{folder.name} was not copied to {type(tier).__name__}: {error}")
            if tier.outlives_notice:
                wait_seconds += self._clock() - start
        return PushResult(tuple(problems), wait_seconds)

    def fetch(self, world: ProcessGroup, folder: Path, tier: Tier) -> bool:
        """Replace `folder`, which is this attempt's, by the copy in `tier`.

        Returns False when the tier has none. Raises CheckpointUnreadable when that can't be found
        out.
        """
        if not rank0_only(world, _unreadable_on_any_error(lambda: folder.name in tier.names())):
            return False
        content = rank0_only(world, _unreadable_on_any_error(lambda: self._clear_for(tier, folder)))
        files = all_ranks_local(world, lambda: manifest.parse(folder.name, content).files)
        own_files = files[world.rank :: world.size]
        all_ranks(
            world, _unreadable_on_any_error(lambda: tier.fetch(folder.name, own_files, folder))
        )
        rank0_only(world, lambda: self._commit(folder, content))
        return True

    def _clear_for(self, tier: Tier, folder: Path) -> bytes:
        _, content = tier.manifest(folder.name)
        if path_exists(folder):
            manifest.remove(self._fence.move_to_trash(folder))
        folder.mkdir(parents=True)
        return content

    def _commit(self, folder: Path, content: bytes) -> None:
        fsync_directory(folder)
        write_atomic(folder / MANIFEST, content)
        fsync_directory(folder.parent)
        manifest.write_commit(folder, content, write=self._fence.write_fenced)

    def _fill(
        self,
        world: ProcessGroup,
        folder: Path,
        tier: Tier,
        distrusted_names: Collection[str],
        urgency: Urgency,
    ) -> None:
        """Copy a checkpoint to a tier, and commit it there.

        If older copies will be deleted for it, the copy is verified before it counts.
        """
        unless_urgent = partial(_unless_urgent, tier, urgency)

        def push_own_files() -> None:
            tier.push(folder, manifest.read(folder).files[world.rank :: world.size])

        all_ranks(world, unless_urgent(push_own_files))
        verified = not urgency.is_set_anywhere(world)
        if verified:
            all_ranks(world, unless_urgent(push_own_files))
        rank0_only(world, unless_urgent(lambda: tier.commit(folder)))
        if verified:
            rank0_only(world, unless_urgent(lambda: self._prune(tier, distrusted_names)))

    def _prune(self, tier: Tier, distrusted_names: Collection[str]) -> None:
        names = sorted(tier.names(), key=save_number)
        trusted_names = [name for name in names if name not in distrusted_names][-self._keep :]
        # A copy that a kill cut short costs money, and is of no use once a newer one is there.
        unfinished_names = [
            name
            for name in tier.unfinished()
            if names and save_number(name) < save_number(names[-1])
        ]
        for name in (*unfinished_names, *names):
            if name not in trusted_names:
                tier.remove(name)

    def _note_numbers(self, names: Collection[str]) -> Collection[str]:
        """Give the next saves higher numbers than these."""
        self._last_number = max((self._last_number, *map(save_number, names)))
        return names


def _list_begun(tier: Tier) -> list[str]:
    return [*tier.names(), *tier.unfinished()]


# Any error of a tier, except damage, says nothing about the copies that it has.
_unreadable_on_any_error = partial(unreadable_on_error, error_class=Exception)


def _unless_urgent(tier: Tier, urgency: Urgency, work: Callable[[], T]) -> Callable[[], T]:
    """Let an interruption notice end one rank's work on a tier.

    Such an end is a failure like any other, so all ranks go on from the same place.
    """
    return work if tier.outlives_notice else lambda: urgency.run_unless_urgent(work)
