"""Checkpoints that can't lie: a new folder each, committed last, believed only when verified.

    checkpoints/step-00000120.000007/{shared.pt, rank-00000.pt, …, manifest.json, COMMITTED}

The second number counts the saves of the run. A step that is trained again after a hard kill gets a
folder of its own and never mixes its files with those of the first time, and "newest" means saved
last, not furthest: after a fall-back the run goes on from an earlier step. Every method is
collective, and a failure on one rank is raised on all of them: no rank is left waiting.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from toolkit.training.attempt.attempt import owner_of
from toolkit.training.attempt.fencing import Owner, Superseded
from toolkit.training.checkpoint import manifest
from toolkit.training.checkpoint.background_save import Flight, Hurry
from toolkit.training.checkpoint.collective import (
    CheckpointFailed,
    CheckpointUnreadable,
    everywhere,
    everywhere_own,
    on_rank_0,
    reading,
)
from toolkit.training.checkpoint.folders import Folders
from toolkit.training.checkpoint.replication import Copies
from toolkit.training.checkpoint.tier import Tier
from toolkit.training.checkpoint.torch_codec import Codec, Parts, TorchCodec
from toolkit.training.distributed.process_group import World
from toolkit.training.run_folder.checkpoint_names import last_step

__all__ = ["CheckpointFailed", "Checkpointer", "Loaded", "Saved"]


@dataclass(frozen=True, slots=True)
class Loaded:
    """A checkpoint that is now in the parts, and the newer ones that could not be believed."""

    name: str
    facts: Mapping[str, Any]
    rejected: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Saved:
    """A committed checkpoint, and what it took."""

    name: str
    step: int
    stall_seconds: float  # that training stood still
    seconds: float  # from the beginning to the commit
    stop_seconds: float  # to the end of what a stop waits for
    whole_seconds: float  # to the end of reading back, copying to tiers and pruning
    bytes: int
    problems: tuple[str, ...] = ()  # copies to further tiers that failed; the checkpoint is good


class Checkpointer:
    """Saves and loads the state of a run under `root`, keeping the newest `keep` good ones.

    `root` must be one folder for all ranks. `tiers` are filled from it after the commit. Who
    is not the `owner` of the run any more commits and deletes nothing: Superseded, on all ranks. By
    default that is this attempt, where `root` is in its run folder.
    """

    def __init__(
        self,
        root: Path,
        world: World,
        *,
        keep: int = 2,
        codec: Codec | None = None,
        tiers: Sequence[Tier] = (),
        background: bool = False,
        owner: Owner | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if keep < 2:  # noqa: PLR2004  # the one that turns out bad, and the one to fall back to
            raise ValueError(f"keep at least 2 checkpoints, not {keep}")
        self._root, self._world, self._owner = root, world, owner or owner_of(root)
        self._folders = Folders(root, keep, self._owner)
        self._codec = codec or TorchCodec()
        self._copies, self._clock = Copies(tiers, keep, self._owner, clock), clock
        self._behind = world.fork() if background else None
        self._flight: Flight[Saved] | None = None
        self._hurry = Hurry()

    def save(
        self, parts: Parts, *, step: int, facts: Mapping[str, Any], urgent: bool = False
    ) -> Saved:
        """Write the parts and every rank's RNG; on return the checkpoint is durable and committed.

        Raises CheckpointFailed on every rank when it is not; the older ones are then untouched.
        `urgent`: the machine goes. Nothing is read back and nothing pruned, which can be done by
        the next attempt, and of the tiers only those are waited for that outlive the notice.
        """
        self._none_in_flight()
        begun = self._clock()
        staged = self._stage(parts, copy=False)
        stated = {**facts, "step": step, "world_size": self._world.size}
        hurry = Hurry(has_come=urgent)
        return self._write(self._world, staged, stated, begun, None, hurry=hurry)

    def begin(self, parts: Parts, *, step: int, facts: Mapping[str, Any]) -> None:
        """Copy the state to memory and return; `settle` tells how writing and committing ended."""
        if self._behind is None:
            raise RuntimeError("Checkpointer(background=True) saves in the background")
        self._none_in_flight()
        behind, begun = self._behind, self._clock()
        staged = self._stage(parts, copy=True)
        stated = {**facts, "step": step, "world_size": self._world.size}
        stall = self._clock() - begun
        hurry = self._hurry = Hurry()
        self._flight = Flight(
            lambda: self._write(behind, staged, stated, begun, stall, hurry=hurry)
        )

    def in_flight(self) -> bool:
        """Whether `settle` would wait for a save, as far as this rank knows."""
        return self._flight is not None and not self._flight.is_over()

    def settle(self, *, urgent: bool = False) -> Saved | None:
        """Wait for the save that `begin` began, if there is one. Raises what `save` would.

        `urgent`: as for `save`. Once it is committed, nothing more is read back or pruned, and what
        is under way to a tier that does not outlive the notice is left behind. No rank is left
        waiting: each one's save comes to its end, because each of them is told here.
        """
        flight, self._flight = self._flight, None
        if flight and urgent:
            self._hurry.come()
        return flight.land() if flight else None

    def load(self, parts: Parts) -> Loaded | None:
        """Put the newest checkpoint that every rank can verify into the parts; None: there is none.

        Raises CheckpointFailed when there are committed checkpoints and not one is good: starting
        from nothing must be a person's decision. So must be going on from an older one when the
        newest can't be told to be good here, or can't be read: CheckpointUnreadable.
        """
        names: list[str] = on_rank_0(self._world, self._known)
        rejected: list[str] = []
        for name in names:
            try:
                facts = self._load(name, parts)
            except CheckpointUnreadable:
                raise
            except CheckpointFailed as error:
                rejected.append(str(error))
                self._folders.distrusted.add(name)
                continue
            return Loaded(name, facts, tuple(rejected))
        if rejected:
            raise CheckpointFailed("no checkpoint can be trusted: " + "; ".join(rejected))
        return None

    def check_owner(self) -> None:
        """Raise Superseded on every rank when another attempt has taken over the run."""
        on_rank_0(self._world, self._owner.check)

    def committed(self) -> list[Path]:
        """The committed folders under `root`, the last one saved first."""
        return self._folders.committed()

    def last_step(self) -> int | None:
        """The step of the first of those."""
        return last_step(self._root)

    # -- saving -----------------------------------------------------------------------------------

    def _none_in_flight(self) -> None:
        if self._flight is not None:
            raise RuntimeError("a save is in flight: settle() it first")

    def _stage(self, parts: Parts, *, copy: bool) -> Any:
        return everywhere_own(self._world, lambda: self._codec.stage(parts, self._world, copy=copy))

    def _write(
        self,
        world: World,
        staged: Any,
        facts: Mapping[str, Any],
        begun: float,
        stall: float | None,
        *,
        hurry: Hurry,
    ) -> Saved:
        folder = self._root / on_rank_0(world, lambda: self._new_folder(facts["step"], hurry))
        try:
            shares = everywhere(world, lambda: self._codec.write(folder, staged, world))
            files = [entry for share in shares for entry in share]
            on_rank_0(world, lambda: manifest.commit(folder, files, facts, put=self._owner.put))
        except (CheckpointFailed, Superseded):
            if world.rank == 0:
                self._folders.abandon(folder)
            raise
        took = self._clock() - begun
        self._confirm(world, folder, hurry)
        pushed = self._copies.push(world, folder, self._folders.distrusted, hurry)
        self._prune(world, hurry)
        whole = self._clock() - begun
        return Saved(
            folder.name,
            facts["step"],
            stall_seconds=whole if stall is None else stall,
            seconds=took,
            stop_seconds=took + pushed.waited_for,
            whole_seconds=whole,
            bytes=sum(entry.size for entry in files),
            problems=pushed.problems,
        )

    def _new_folder(self, step: int, hurry: Hurry) -> str:
        return self._folders.new(step, self._copies.last_number(hurry))

    def _confirm(self, world: World, folder: Path, hurry: Hurry) -> None:
        """Read back what was written, before anything older may go for it; in a hurry nothing goes.

        What this attempt can't believe must not take up the disk either.
        """
        part = {"part": world.rank, "of": world.size}

        def verify() -> None:
            if not hurry.has_come():
                manifest.verify(folder, **part, leave=hurry.has_come)

        try:
            everywhere_own(world, reading(verify))
        except CheckpointFailed as error:
            if isinstance(error, CheckpointUnreadable):
                self._folders.doubt(folder.name)
            else:
                self._folders.distrusted.add(folder.name)
            self._prune(world, hurry)
            raise
        self._folders.confirmed()

    def _prune(self, world: World, hurry: Hurry) -> None:
        if not hurry.agreed(world):
            on_rank_0(world, self._folders.prune)

    # -- loading ----------------------------------------------------------------------------------

    def _known(self) -> list[str]:
        return self._copies.known([folder.name for folder in self.committed()])

    def _load(self, name: str, parts: Parts) -> Mapping[str, Any]:
        """From `root`, or else from the first tier that has a good copy.

        What can't be read in `root` is left alone: no copy takes its place.
        """
        problems: list[CheckpointFailed] = []
        for tier in (None, *self._copies.tiers):
            try:
                if tier and not self._copies.fetch(self._world, self._root / name, tier):
                    continue
                read = reading(partial(self._read, name, parts))
                found, apply = everywhere_own(self._world, read)
                everywhere(self._world, reading(apply))
                self._look_at_rest(name, found)
            except CheckpointFailed as error:
                problems.append(error)
                if tier is None and isinstance(error, CheckpointUnreadable):
                    break
            else:
                return found.facts
        unsure = any(isinstance(problem, CheckpointUnreadable) for problem in problems)
        kind = CheckpointUnreadable if unsure else CheckpointFailed
        raise kind("; ".join(map(str, problems)))

    def _read(self, name: str, parts: Parts) -> tuple[manifest.Manifest, Callable[[], None]]:
        folder, world = self._root / name, self._world
        found = manifest.read(folder)
        manifest.check_sizes(folder, found, part=world.rank, of=world.size)
        return found, self._codec.read(folder, found, parts, world)

    def _look_at_rest(self, name: str, found: manifest.Manifest) -> None:
        """Also at what no rank had a use for, such as files of ranks that are no longer there.

        What they read was checked as they read it, so no byte is hashed twice.
        """
        folder, world = self._root / name, self._world
        good = set().union(*world.gather(found.good))
        part = {"part": world.rank, "of": world.size}
        everywhere(world, reading(lambda: manifest.verify_rest(folder, found, good, **part)))
