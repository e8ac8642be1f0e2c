"""Save and load checkpoints that are committed last and believed only when verified.

    checkpoints/step-00000120.000007/{shared.pt, rank-00000.pt, …, manifest.json, COMMITTED}

Every save has a new folder. The second number counts the saves of the run. After a hard kill, a
step that is trained again gets a folder of its own. Its files never mix with those of the first
time. "Newest" means saved last, not furthest: after a fall-back the run goes on from an earlier
step.

Every method is collective. A failure on one rank is raised on all of them, so no rank is left
waiting.
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
    """A checkpoint that was loaded into the parts."""

    name: str
    facts: Mapping[str, Any]
    rejected: tuple[str, ...]  # the newer checkpoints that failed, one message each


@dataclass(frozen=True, slots=True)
class Saved:
    """A committed checkpoint, and the time that it took."""

    name: str
    step: int
    stall_seconds: float  # how long training stood still
    seconds: float  # from the beginning to the commit
    stop_seconds: float  # `seconds`, and the copies to tiers that a stop waits for
    whole_seconds: float  # from the beginning to the end of reading back, copying and pruning
    bytes: int
    problems: tuple[str, ...] = ()  # copies to further tiers that failed; the checkpoint is good


class Checkpointer:
    """A store of a run's state under `root`, which keeps the newest `keep` good checkpoints.

    `root` must be one folder for all ranks. `tiers` are filled from it after the commit. Only the
    run's `owner` commits and deletes: for others, Superseded is raised on all ranks. By default the
    owner is this attempt, if `root` is in its run folder.
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
        if keep < 2:  # noqa: PLR2004  # a bad one, and one to fall back to
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
        """Write the parts and every rank's random state, and commit them.

        On return the checkpoint is durable. Raises CheckpointFailed on every rank when it is not;
        the older ones are then untouched.

        `urgent` means that the instance goes. Nothing is read back and nothing pruned: the next
        attempt can do both. The save waits only for tiers that outlive the notice.
        """
        self._none_in_flight()
        begun = self._clock()
        staged = self._stage(parts, copy=False)
        stated = {**facts, "step": step, "world_size": self._world.size}
        hurry = Hurry(has_come=urgent)
        return self._write(self._world, staged, stated, begun, None, hurry=hurry)

    def begin(self, parts: Parts, *, step: int, facts: Mapping[str, Any]) -> None:
        """Copy the state to memory, and write it in the background.

        Returns as soon as it is copied. `settle` returns or raises the outcome.
        """
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
        """Return whether `settle` would wait, as far as this rank knows."""
        return self._flight is not None and not self._flight.is_over()

    def settle(self, *, urgent: bool = False) -> Saved | None:
        """Wait for the save that `begin` began, if there is one.

        Returns it, or raises the same errors as `save`.

        `urgent` is as for `save`. After the commit nothing more is read back or pruned, and copies
        to tiers that do not outlive the notice are abandoned. No rank is left waiting: each rank's
        save comes to its end, because each of them is told here.
        """
        flight, self._flight = self._flight, None
        if flight and urgent:
            self._hurry.come()
        return flight.land() if flight else None

    def load(self, parts: Parts) -> Loaded | None:
        """Load the newest checkpoint that every rank can verify.

        Returns None when there is no checkpoint. Raises CheckpointFailed when there are committed
        checkpoints and not one is good: a person must decide to start from nothing.

        Raises CheckpointUnreadable when the newest can't be read here, or can't be told to be good.
        A person must decide to go on from an older one.
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
        """Raise Superseded on all ranks when another attempt has the run."""
        on_rank_0(self._world, self._owner.check)

    def committed(self) -> list[Path]:
        """Return the committed folders under `root`, the last one saved first."""
        return self._folders.committed()

    def last_step(self) -> int | None:
        """Return the step of the checkpoint that was saved last."""
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
        """Read back the files just written, before an older checkpoint is deleted.

        In a hurry nothing is read, and nothing deleted. A checkpoint that can't be confirmed must
        not take up the disk either, so it is pruned like the others.
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
        """Load a checkpoint from `root`, or else from a tier.

        The first tier with a good copy is taken. A folder in `root` that can't be read is left
        alone: no copy takes its place.
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
        """Verify the blocks that no rank has read.

        Such as files of ranks that are no longer there. The other blocks were verified as they were
        read, so no byte is hashed twice.
        """
        folder, world = self._root / name, self._world
        good = set().union(*world.gather(found.good))
        part = {"part": world.rank, "of": world.size}
        everywhere(world, reading(lambda: manifest.verify_rest(folder, found, good, **part)))
