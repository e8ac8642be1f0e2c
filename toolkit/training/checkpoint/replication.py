"""Copy checkpoints to tiers after their commit, and fetch them back when they are needed."""

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from toolkit.training.attempt.fencing import Owner
from toolkit.training.checkpoint import manifest
from toolkit.training.checkpoint.background_save import Hurry
from toolkit.training.checkpoint.collective import (
    CheckpointFailed,
    everywhere,
    everywhere_own,
    on_rank_0,
    reading,
)
from toolkit.training.checkpoint.manifest import MANIFEST
from toolkit.training.checkpoint.tier import Tier
from toolkit.training.distributed.process_group import World
from toolkit.training.io.durable_files import fsync_directory, there, write_atomic
from toolkit.training.run_folder.checkpoint_names import number

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Pushed:
    """The result of filling the tiers."""

    problems: tuple[str, ...]  # one message for each tier that failed
    waited_for: float  # seconds for the tiers that a stop waits for


class Copies:
    """The tiers of one checkpointer. Each keeps as many checkpoints as the first place does."""

    def __init__(
        self,
        tiers: Sequence[Tier],
        keep: int,
        owner: Owner,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.tiers, self._keep, self._owner, self._clock = tuple(tiers), keep, owner, clock
        self._unasked = list(self.tiers)
        self._last = 0

    def last_number(self, hurry: Hurry) -> int:
        """Return the highest number of a save in the tiers.

        Unreachable tiers are skipped: a save needs none. Copies that were only begun count, for
        under their name a tier may have other bytes. A tier is asked once. After that it holds only
        what this run put there.
        """
        for tier in tuple(self._unasked):
            try:
                self._note(_in_time(tier, hurry, partial(_begun, tier))())
            except Exception:  # noqa: BLE001, S112  # an unreachable tier must not prevent a save
                continue
            self._unasked.remove(tier)
        return self._last

    def known(self, here: Collection[str]) -> list[str]:
        """Return every checkpoint in `here` or in a tier.

        The last one saved comes first. A tier that is away raises an error only when nothing is
        known without it.
        """
        names = set(here)
        for tier in self.tiers:
            try:
                names.update(self._note(tier.names()))
            except Exception:
                if not names:
                    raise
        return sorted(names, key=number, reverse=True)

    def push(
        self,
        world: World,
        folder: Path,
        distrusted: Collection[str],
        hurry: Hurry,
    ) -> Pushed:
        """Fill the tiers. A tier that fails costs only its copy.

        In a hurry, only the tiers that outlive the notice are filled. A hurry that comes on the way
        ends the work for the others.
        """
        self._note([folder.name])
        problems, waited_for = [], 0.0
        for tier in self.tiers:
            begun = self._clock()
            try:
                self._fill(world, folder, tier, distrusted, hurry)
            except CheckpointFailed as error:
                problems.append(f"{folder.name} is not in {type(tier).__name__}: {error}")
            if tier.outlives_notice:
                waited_for += self._clock() - begun
        return Pushed(tuple(problems), waited_for)

    def fetch(self, world: World, folder: Path, tier: Tier) -> bool:
        """Replace `folder`, which is the owner's, by the copy in `tier`.

        Returns False when the tier has none. Raises CheckpointUnreadable when that can't be found
        out.
        """
        if not on_rank_0(world, _asking(lambda: folder.name in tier.names())):
            return False
        content = on_rank_0(world, _asking(lambda: self._clear_for(tier, folder)))
        files = everywhere_own(world, lambda: manifest.parse(folder.name, content).files)
        mine = files[world.rank :: world.size]
        everywhere(world, _asking(lambda: tier.fetch(folder.name, mine, folder)))
        on_rank_0(world, lambda: self._commit(folder, content))
        return True

    def _clear_for(self, tier: Tier, folder: Path) -> bytes:
        _, content = tier.manifest(folder.name)
        if there(folder):
            manifest.remove(self._owner.take(folder))
        folder.mkdir(parents=True)
        return content

    def _commit(self, folder: Path, content: bytes) -> None:
        fsync_directory(folder)
        write_atomic(folder / MANIFEST, content)
        fsync_directory(folder.parent)
        manifest.seal(folder, content, put=self._owner.put)

    def _fill(
        self,
        world: World,
        folder: Path,
        tier: Tier,
        distrusted: Collection[str],
        hurry: Hurry,
    ) -> None:
        """Copy a checkpoint to a tier, and commit it there.

        If older copies will be deleted for it, the copy is verified before it counts.
        """
        in_time = partial(_in_time, tier, hurry)

        def part() -> None:
            tier.push(folder, manifest.read(folder).files[world.rank :: world.size])

        everywhere(world, in_time(part))
        sure = not hurry.agreed(world)
        if sure:
            everywhere(world, in_time(part))
        on_rank_0(world, in_time(lambda: tier.commit(folder)))
        if sure:
            on_rank_0(world, in_time(lambda: self._prune(tier, distrusted)))

    def _prune(self, tier: Tier, distrusted: Collection[str]) -> None:
        names = sorted(tier.names(), key=number)
        trusted = [name for name in names if name not in distrusted][-self._keep :]
        # A copy that a kill cut short costs money, and is of no use once a newer one is there.
        left = [name for name in tier.unfinished() if names and number(name) < number(names[-1])]
        for name in (*left, *names):
            if name not in trusted:
                tier.remove(name)

    def _note(self, names: Collection[str]) -> Collection[str]:
        """Give the next saves higher numbers than these."""
        self._last = max((self._last, *map(number, names)))
        return names


def _begun(tier: Tier) -> list[str]:
    return [*tier.names(), *tier.unfinished()]


# Any error of a tier, except damage, says nothing about the copies that it has.
_asking = partial(reading, unproven=Exception)


def _in_time(tier: Tier, hurry: Hurry, work: Callable[[], T]) -> Callable[[], T]:
    """Wrap one rank's work on a tier, so a hurry ends it.

    Such an end is a failure like any other, so all ranks go on from the same place.
    """
    return work if tier.outlives_notice else lambda: hurry.unless(work)
