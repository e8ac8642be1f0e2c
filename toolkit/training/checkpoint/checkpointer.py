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

from toolkit.training.attempt.attempt import fence_of
from toolkit.training.attempt.fencing import Fence
from toolkit.training.checkpoint import manifest
from toolkit.training.checkpoint.background_save import BackgroundTask, Urgency
from toolkit.training.checkpoint.collective import (
    all_ranks,
    all_ranks_local,
    rank0_only,
    unreadable_on_error,
)
from toolkit.training.checkpoint.folders import Folders
from toolkit.training.checkpoint.replication import Replication
from toolkit.training.checkpoint.tier import Tier
from toolkit.training.checkpoint.torch_codec import Codec, Parts, TorchCodec
from toolkit.training.distributed.process_group import ProcessGroup
from toolkit.training.errors import CheckpointFailed, CheckpointUnreadable, Superseded
from toolkit.training.run_folder.checkpoint_names import last_step

__all__ = ["CheckpointFailed", "Checkpointer", "LoadedCheckpoint", "SavedCheckpoint"]


@dataclass(frozen=True, slots=True)
class LoadedCheckpoint:
    """A checkpoint that was loaded into the parts."""

    name: str
    facts: Mapping[str, Any]
    rejected: tuple[str, ...]  # the newer checkpoints that failed, one message each


@dataclass(frozen=True, slots=True)
class SavedCheckpoint:
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

    `root` must be one folder for all ranks. `tiers` are filled from it after the commit.

    Only the attempt that has the `fence` commits and deletes. For others, Superseded is raised on
    all ranks. By default it is this attempt's fence, if `root` is in its run folder.
    """

    def __init__(
        self,
        root: Path,
        world: ProcessGroup,
        *,
        keep: int = 2,
        codec: Codec | None = None,
        tiers: Sequence[Tier] = (),
        background: bool = False,
        fence: Fence | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if keep < 2:  # noqa: PLR2004  # a bad one, and one to fall back to
            raise ValueError(f"keep at least 2 checkpoints, not {keep}")
        self._root, self._world, self._fence = root, world, fence or fence_of(root)
        self._folders = Folders(root, keep, self._fence)
        self._codec = codec or TorchCodec()
        self._replication, self._clock = Replication(tiers, keep, self._fence, clock), clock
        self._background_world = world.fork() if background else None
        self._background_task: BackgroundTask[SavedCheckpoint] | None = None
        self._urgency = Urgency()

    def save(
        self, parts: Parts, *, step: int, facts: Mapping[str, Any], urgent: bool = False
    ) -> SavedCheckpoint:
        """Write the parts and every rank's random state, and commit them.

        On return the checkpoint is durable. Raises CheckpointFailed on every rank when it is not;
        the older ones are then untouched.

        `urgent` means that the instance goes. Nothing is read back and nothing pruned: the next
        attempt can do both. The save waits only for tiers that outlive the notice.
        """
        self._check_no_save_runs()
        start = self._clock()
        staged = self._stage(parts, copy=False)
        all_facts = {**facts, "step": step, "world_size": self._world.size}
        urgency = Urgency(initially_set=urgent)
        return self._write(self._world, staged, all_facts, start, None, urgency=urgency)

    def start_save(self, parts: Parts, *, step: int, facts: Mapping[str, Any]) -> None:
        """Copy the state to memory, and write it in the background.

        Returns as soon as it is copied. `wait_for_save` returns or raises the outcome.
        """
        if self._background_world is None:
            raise RuntimeError("start_save needs Checkpointer(background=True)")
        self._check_no_save_runs()
        background_world, start = self._background_world, self._clock()
        staged = self._stage(parts, copy=True)
        all_facts = {**facts, "step": step, "world_size": self._world.size}
        stall = self._clock() - start
        urgency = self._urgency = Urgency()
        self._background_task = BackgroundTask(
            lambda: self._write(background_world, staged, all_facts, start, stall, urgency=urgency)
        )

    def is_saving(self) -> bool:
        """Return whether `wait_for_save` would wait, as far as this rank knows."""
        return self._background_task is not None and not self._background_task.is_finished()

    def wait_for_save(self, *, urgent: bool = False) -> SavedCheckpoint | None:
        """Wait for the save that `start_save` started, if there is one.

        Returns it, or raises the same errors as `save`.

        `urgent` is as for `save`. After the commit nothing more is read back or pruned, and copies
        to tiers that do not outlive the notice are abandoned. No rank is left waiting: each rank's
        save comes to its end, because every rank calls this.
        """
        task, self._background_task = self._background_task, None
        if task and urgent:
            self._urgency.set()
        return task.result() if task else None

    def load(self, parts: Parts) -> LoadedCheckpoint | None:
        """Load the newest checkpoint that every rank can verify.

        Returns None when there is no checkpoint. Raises CheckpointFailed when there are committed
        checkpoints and not one is good: a person must decide to start from nothing.

        Raises CheckpointUnreadable when the newest can't be read here, or can't be told to be good.
        A person must decide to go on from an older one.
        """
        names: list[str] = rank0_only(self._world, self._list_names)
        rejected: list[str] = []
        for name in names:
            try:
                facts = self._load(name, parts)
            except CheckpointUnreadable:
                raise
            except CheckpointFailed as error:
                rejected.append(str(error))
                self._folders.distrusted_names.add(name)
                continue
            return LoadedCheckpoint(name, facts, tuple(rejected))
        if rejected:
            raise CheckpointFailed("no checkpoint can be trusted: " + "; ".join(rejected))
        return None

    def check_fence(self) -> None:
        """Raise Superseded on all ranks when another attempt has the run."""
        rank0_only(self._world, self._fence.check)

    def committed(self) -> list[Path]:
        """Return the committed folders under `root`, the last one saved first."""
        return self._folders.committed()

    def last_step(self) -> int | None:
        """Return the step of the checkpoint that was saved last."""
        return last_step(self._root)

    # -- saving -----------------------------------------------------------------------------------

    def _check_no_save_runs(self) -> None:
        if self._background_task is not None:
            raise RuntimeError("a save is running: call wait_for_save() first")

    def _stage(self, parts: Parts, *, copy: bool) -> Any:
        return all_ranks_local(
            self._world, lambda: self._codec.stage(parts, self._world, copy=copy)
        )

    def _write(
        self,
        world: ProcessGroup,
        staged: Any,
        facts: Mapping[str, Any],
        start: float,
        stall: float | None,
        *,
        urgency: Urgency,
    ) -> SavedCheckpoint:
        folder = self._root / rank0_only(world, lambda: self._new_folder(facts["step"], urgency))
        try:
            entries_by_rank = all_ranks(world, lambda: self._codec.write(folder, staged, world))
            files = [entry for share in entries_by_rank for entry in share]
            rank0_only(
                world, lambda: manifest.commit(folder, files, facts, write=self._fence.write_fenced)
            )
        except (CheckpointFailed, Superseded):
            if world.rank == 0:
                self._folders.abandon(folder)
            raise
        commit_seconds = self._clock() - start
        self._read_back(world, folder, urgency)
        push_result = self._replication.push(world, folder, self._folders.distrusted_names, urgency)
        self._prune(world, urgency)
        total_seconds = self._clock() - start
        return SavedCheckpoint(
            folder.name,
            facts["step"],
            stall_seconds=total_seconds if stall is None else stall,
            seconds=commit_seconds,
            stop_seconds=commit_seconds + push_result.wait_seconds,
            whole_seconds=total_seconds,
            bytes=sum(entry.size for entry in files),
            problems=push_result.problems,
        )

    def _new_folder(self, step: int, urgency: Urgency) -> str:
        return self._folders.create(step, self._replication.last_number(urgency))

    def _read_back(self, world: ProcessGroup, folder: Path, urgency: Urgency) -> None:
        """Read back the files just written, before an older checkpoint is deleted.

        Against a notice nothing is read, and nothing deleted. A checkpoint that can't be confirmed
        must not take up the disk either, so it is pruned like the others.
        """
        part = {"rank": world.rank, "world_size": world.size}

        def verify() -> None:
            if not urgency.is_set():
                manifest.verify(folder, **part, stop=urgency.is_set)

        try:
            all_ranks_local(world, unreadable_on_error(verify))
        except CheckpointFailed as error:
            if isinstance(error, CheckpointUnreadable):
                self._folders.mark_doubted(folder.name)
            else:
                self._folders.distrusted_names.add(folder.name)
            self._prune(world, urgency)
            raise
        self._folders.confirm_newest()

    def _prune(self, world: ProcessGroup, urgency: Urgency) -> None:
        if not urgency.is_set_anywhere(world):
            rank0_only(world, self._folders.prune)

    # -- loading ----------------------------------------------------------------------------------

    def _list_names(self) -> list[str]:
        return self._replication.list_names([folder.name for folder in self.committed()])

    def _load(self, name: str, parts: Parts) -> Mapping[str, Any]:
        """Load a checkpoint from `root`, or else from a tier.

        The first tier with a good copy is taken. A folder in `root` that can't be read is left
        alone: no copy takes its place.
        """
        problems: list[CheckpointFailed] = []
        for tier in (None, *self._replication.tiers):
            try:
                if tier and not self._replication.fetch(self._world, self._root / name, tier):
                    continue
                read = unreadable_on_error(partial(self._read, name, parts))
                loaded_manifest, apply = all_ranks_local(self._world, read)
                all_ranks(self._world, unreadable_on_error(apply))
                self._verify_rest(name, loaded_manifest)
            except CheckpointFailed as error:
                problems.append(error)
                if tier is None and isinstance(error, CheckpointUnreadable):
                    break
            else:
                return loaded_manifest.facts
        may_be_good = any(isinstance(problem, CheckpointUnreadable) for problem in problems)
        kind = CheckpointUnreadable if may_be_good else CheckpointFailed
        raise kind("; ".join(map(str, problems)))

    def _read(self, name: str, parts: Parts) -> tuple[manifest.Manifest, Callable[[], None]]:
        folder, world = self._root / name, self._world
        loaded_manifest = manifest.read(folder)
        manifest.check_sizes(folder, loaded_manifest, rank=world.rank, world_size=world.size)
        return loaded_manifest, self._codec.read(folder, loaded_manifest, parts, world)

    def _verify_rest(self, name: str, loaded_manifest: manifest.Manifest) -> None:
        """Verify the blocks that no rank has read.

        Such as files of ranks that are no longer there. The other blocks were verified as they were
        read, so no byte is hashed twice.
        """
        folder, world = self._root / name, self._world
        verified_blocks = set().union(*world.gather(loaded_manifest.verified_blocks))
        part = {"rank": world.rank, "world_size": world.size}

        def verify() -> None:
            manifest.verify_rest(folder, loaded_manifest, verified_blocks, **part)

        all_ranks(world, unreadable_on_error(verify))
