"""Copies of checkpoints in further places: filled after a commit, fetched when one is needed."""

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
    """What went wrong, and the seconds that were for tiers which a stop waits for."""

    problems: tuple[str, ...]
    waited_for: float


class Copies:
    """The tiers of one checkpointer, each keeping as many checkpoints as the first place does."""

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
        """The highest number of a save in the tiers, as far as they can be reached: to save, none
        must be.

        What was only begun counts: under its name a tier may have other bytes. A tier is asked
        once: from then on what it has is what this run put there.
        """
        for tier in tuple(self._unasked):
            try:
                self._note(_in_time(tier, hurry, partial(_begun, tier))())
            except Exception:  # noqa: BLE001, S112  # one that is away keeps nothing from being saved
                continue
            self._unasked.remove(tier)
        return self._last

    def known(self, here: Collection[str]) -> list[str]:
        """Every checkpoint, `here` or in a tier, the last one saved first.

        A tier that is away raises only where nothing is known without it.
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
        """Fill the tiers. One that fails costs its copy, not the checkpoint.

        In a hurry, only those that outlive the notice; one that comes on the way ends what is done
        for the others.
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
        """Have `folder`, which is the owner's, be the copy that `tier` has; False: it has none.

        Raises CheckpointUnreadable where that can't be found out.
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
        """Where older ones will go for it, what arrived is looked at before it counts."""
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
        # What a kill left half done is of no use once a newer one is there, and is paid for.
        left = [name for name in tier.unfinished() if names and number(name) < number(names[-1])]
        for name in (*left, *names):
            if name not in trusted:
                tier.remove(name)

    def _note(self, names: Collection[str]) -> Collection[str]:
        """No save gets a number that one of these has, or a lower one."""
        self._last = max((self._last, *map(number, names)))
        return names


def _begun(tier: Tier) -> list[str]:
    return [*tier.names(), *tier.unfinished()]


# Whatever else goes wrong with a tier than damage says nothing about what it has.
_asking = partial(reading, unproven=Exception)


def _in_time(tier: Tier, hurry: Hurry, work: Callable[[], T]) -> Callable[[], T]:
    """What one rank does with a tier, and does not see through when there is a hurry.

    That is a failure as any other, so all ranks go on from the same place.
    """
    return work if tier.outlives_notice else lambda: hurry.unless(work)
