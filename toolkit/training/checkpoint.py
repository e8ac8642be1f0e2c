"""Checkpoints that can't lie: a new folder each, committed last, believed only when verified.

    checkpoints/step-00000120.000007/{shared.pt, rank-00000.pt, …, manifest.json, COMMITTED}

The second number counts the saves of the run. A step that is trained again after a hard kill gets a
folder of its own and never mixes its files with those of the first time, and "newest" means saved
last, not furthest: after a fall-back the run goes on from an earlier step. Every method is
collective, and a failure on one rank is raised on all of them: no rank is left waiting.
"""

import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from toolkit.training import manifest
from toolkit.training.manifest import Corrupt
from toolkit.training.state import Codec, Parts, TorchCodec
from toolkit.training.world import World

_NAME = re.compile(r"step-\d{8,}\.(\d{6,})")

T = TypeVar("T")


class CheckpointFailed(Exception):  # noqa: N818  # says what happened
    """A save or load failed on at least one rank; raised on all, with every rank's reason."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """A checkpoint that is now in the parts, and the newer ones that could not be believed."""

    name: str
    facts: Mapping[str, Any]
    rejected: tuple[str, ...]


class Checkpointer:
    """Saves and loads the state of a run under `root`, keeping the newest `keep` good ones."""

    def __init__(
        self, root: Path, world: World, *, keep: int = 2, codec: Codec | None = None
    ) -> None:
        if keep < 2:  # noqa: PLR2004  # the one that turns out bad, and the one to fall back to
            raise ValueError(f"keep at least 2 checkpoints, not {keep}")
        self._root, self._world, self._keep = root, world, keep
        self._codec = codec or TorchCodec()
        self._distrusted: set[str] = set()

    def save(self, parts: Parts, *, step: int, facts: Mapping[str, Any]) -> str:
        """Write the parts and every rank's RNG; on return the checkpoint is durable and committed.

        Raises CheckpointFailed on every rank when it is not; the older ones are then untouched.
        """
        folder = self._root / self._on_rank_0(lambda: self._new_folder(step))
        stated = {**facts, "step": step, "world_size": self._world.size}
        try:
            shares = self._everywhere(
                lambda: self._codec.write(folder, parts, rank=self._world.rank)
            )
            files = [entry for share in shares for entry in share]
            self._on_rank_0(lambda: self._finish(folder, files, stated))
        except CheckpointFailed:
            if self._world.rank == 0 and not manifest.is_committed(folder):
                shutil.rmtree(folder, ignore_errors=True)  # a full disk needs the space back
            raise
        return folder.name

    def load(self, parts: Parts) -> Loaded | None:
        """Put the newest checkpoint that every rank can verify into the parts; None: there is none.

        Raises CheckpointFailed when there are committed checkpoints and not one is good: starting
        from nothing must be a person's decision.
        """
        names: list[str] = self._on_rank_0(lambda: [folder.name for folder in self.committed()])
        rejected: list[str] = []
        for name in names:
            try:
                ready = self._everywhere_own(lambda name=name: self._read(name, parts))  # type: ignore[misc]  # mypy can't infer a default
            except CheckpointFailed as error:
                rejected.append(str(error))
                self._distrusted.add(name)
                continue
            found, apply = ready
            apply()
            return Loaded(name, found.facts, tuple(rejected))
        if rejected:
            raise CheckpointFailed("no checkpoint can be trusted: " + "; ".join(rejected))
        return None

    def committed(self) -> list[Path]:
        """The committed folders, the last one saved first."""
        return [folder for _, folder in self._folders() if manifest.is_committed(folder)]

    def _new_folder(self, step: int) -> str:
        last = max((number for number, _ in self._folders()), default=0)
        folder = self._root / f"step-{step:08d}.{last + 1:06d}"
        folder.mkdir(parents=True)
        return folder.name

    def _read(self, name: str, parts: Parts) -> tuple[manifest.Manifest, Callable[[], None]]:
        folder = self._root / name
        # Rank 0 looks at every file, also at those of ranks that are no longer there.
        found = manifest.verify(folder) if self._world.rank == 0 else manifest.read(folder)
        return found, self._codec.read(folder, found, parts, rank=self._world.rank)

    def _finish(
        self, folder: Path, files: list[manifest.FileEntry], facts: Mapping[str, Any]
    ) -> None:
        manifest.commit(folder, files, facts)
        try:
            manifest.verify(folder)
        except Corrupt:
            manifest.remove(folder)
            raise
        self._prune()

    def _prune(self) -> None:
        """Delete all but the newest `keep`; the newest has just been verified.

        One that could not be loaded does not count as kept. What can't be deleted costs space; it
        must not cost the run.
        """
        trusted = [folder for folder in self.committed() if folder.name not in self._distrusted]
        for _, folder in self._folders():
            if folder not in trusted[: self._keep]:
                manifest.remove(folder, rmtree=lambda path: shutil.rmtree(path, ignore_errors=True))

    def _folders(self) -> list[tuple[int, Path]]:
        """Every folder a save has begun, newest first."""
        paths = self._root.iterdir() if self._root.is_dir() else ()
        found = [(int(match[1]), path) for path in paths if (match := _NAME.fullmatch(path.name))]
        return sorted(found, reverse=True)

    def _on_rank_0(self, work: Callable[[], T]) -> T:
        """Do it on rank 0; its result, or its failure, is everyone's."""
        outcome: tuple[Any, str | None] = (None, None)
        if self._world.rank == 0:
            outcome = _attempt(work)
        result, problem = self._world.broadcast(outcome)
        if problem is not None:
            raise CheckpointFailed(problem)
        return result  # type: ignore[no-any-return]

    def _everywhere(self, work: Callable[[], T]) -> list[T]:
        """Do it on every rank; all the results, or one failure for all."""
        outcomes = self._world.gather(_attempt(work))
        _raise_any([problem for _, problem in outcomes])
        return [result for result, _ in outcomes]

    def _everywhere_own(self, work: Callable[[], T]) -> T:
        """As `_everywhere`, for results that don't travel: each rank keeps its own."""
        result, problem = _attempt(work)
        _raise_any(self._world.gather(problem))
        return result  # type: ignore[return-value]  # there is one when there is no problem


def _attempt(work: Callable[[], T]) -> tuple[T | None, str | None]:
    # Everything is caught: a rank that raised alone would leave the others waiting for it.
    try:
        return work(), None
    except Exception as error:  # noqa: BLE001  # told to every rank and raised there
        text = str(error) if isinstance(error, Corrupt) else f"{type(error).__name__}: {error}"
        return None, text


def _raise_any(problems: list[str | None]) -> None:
    found = sorted({problem for problem in problems if problem is not None})
    if found:
        raise CheckpointFailed("; ".join(found))
