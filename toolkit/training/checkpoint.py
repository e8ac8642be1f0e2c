"""Checkpoints that can't lie: a new folder each, committed last, believed only when verified.

    checkpoints/step-00000120.000007/{shared.pt, rank-00000.pt, …, manifest.json, COMMITTED}

The second number counts the saves of the run. A step that is trained again after a hard kill gets a
folder of its own and never mixes its files with those of the first time, and "newest" means saved
last, not furthest: after a fall-back the run goes on from an earlier step. Every method is
collective, and a failure on one rank is raised on all of them: no rank is left waiting.
"""

import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from toolkit.training import manifest
from toolkit.training.agreement import CheckpointFailed, everywhere, everywhere_own, on_rank_0
from toolkit.training.copies import Copies
from toolkit.training.flight import Flight, Hurry
from toolkit.training.owner import UNCLAIMED, Owner, Superseded
from toolkit.training.state import Codec, Parts, TorchCodec
from toolkit.training.tiers import NAME, Tier, number
from toolkit.training.world import World

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
    is not the `owner` of the run any more commits and deletes nothing: Superseded, on all ranks.
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
        owner: Owner = UNCLAIMED,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if keep < 2:  # noqa: PLR2004  # the one that turns out bad, and the one to fall back to
            raise ValueError(f"keep at least 2 checkpoints, not {keep}")
        self._root, self._world, self._keep, self._owner = root, world, keep, owner
        self._codec = codec or TorchCodec()
        self._copies, self._clock = Copies(tiers, keep, owner, clock), clock
        self._distrusted: set[str] = set()
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
        newest can't be told to be good here: agreement.CheckpointUnreadable.
        """
        names: list[str] = on_rank_0(self._world, self._known)
        rejected: list[str] = []
        for name in names:
            try:
                facts = self._load(name, parts)
            except CheckpointFailed as error:
                rejected.append(str(error))
                self._distrusted.add(name)
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
        return [folder for folder in self._folders() if manifest.is_committed(folder)]

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
                self._abandon(folder)
            raise
        took = self._clock() - begun
        self._confirm(world, folder, hurry)
        pushed = self._copies.push(world, folder, self._distrusted, hurry)
        if not hurry.agreed(world):
            on_rank_0(world, self._prune)
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
        self._owner.check()
        here = (number(folder.name) for folder in self._folders())
        last = max((self._copies.last_number(hurry), *here))
        folder = self._root / f"step-{step:08d}.{last + 1:06d}"
        folder.mkdir(parents=True)
        return folder.name

    def _confirm(self, world: World, folder: Path, hurry: Hurry) -> None:
        """Read back what was written, before anything older may go; in a hurry, nothing goes."""
        part = {"part": world.rank, "of": world.size}

        def verify() -> None:
            if not hurry.has_come():
                manifest.verify(folder, **part, leave=hurry.has_come)

        try:
            everywhere_own(world, verify)
        except CheckpointFailed:
            self._distrusted.add(folder.name)  # for the next prune; the one before it stays
            raise

    def _prune(self) -> None:
        """Delete all but the newest `keep`; the newest has just been verified.

        One that could not be loaded does not count as kept. What can't be deleted costs space; it
        must not cost the run.
        """
        with suppress(OSError):
            trusted = [folder for folder in self.committed() if folder.name not in self._distrusted]
            for folder in self._folders():
                if folder not in trusted[: self._keep]:
                    self._remove(folder)

    def _abandon(self, folder: Path) -> None:
        """A full disk needs the space back of what will never be committed."""
        with suppress(OSError, Superseded):
            if not manifest.is_committed(folder):
                self._remove(folder)

    def _remove(self, folder: Path) -> None:
        with suppress(OSError):
            taken = self._owner.take(folder)
            manifest.remove(taken, rmtree=partial(shutil.rmtree, ignore_errors=True))

    # -- loading ----------------------------------------------------------------------------------

    def _known(self) -> list[str]:
        return self._copies.known([folder.name for folder in self.committed()])

    def _load(self, name: str, parts: Parts) -> Mapping[str, Any]:
        """From `root`, or else from the first tier that has a good copy."""
        problems = []
        for tier in (None, *self._copies.tiers):
            try:
                if tier and not self._copies.fetch(self._world, self._root / name, tier):
                    continue
                found, apply = everywhere_own(self._world, lambda: self._read(name, parts))
                everywhere(self._world, apply)
                self._look_at_rest(name, found)
            except CheckpointFailed as error:
                problems.append(str(error))
            else:
                return found.facts
        raise CheckpointFailed("; ".join(problems))

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
        everywhere(world, lambda: manifest.verify_rest(folder, found, good, **part))

    def _folders(self) -> list[Path]:
        """Every folder a save has begun, newest first."""
        paths = self._root.iterdir() if self._root.is_dir() else ()
        found = [path for path in paths if NAME.fullmatch(path.name)]
        return sorted(found, key=lambda path: (number(path.name), path.name), reverse=True)
