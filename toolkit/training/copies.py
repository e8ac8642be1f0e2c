"""Copies of checkpoints in further places: filled after a commit, fetched when one is needed."""

import shutil
from collections.abc import Collection, Sequence
from pathlib import Path

from toolkit.training import manifest
from toolkit.training.agreement import CheckpointFailed, everywhere, everywhere_own, on_rank_0
from toolkit.training.files import fsync_directory, write_atomic
from toolkit.training.manifest import MANIFEST
from toolkit.training.tiers import Tier, number
from toolkit.training.world import World


class Copies:
    """The tiers of one checkpointer, each keeping as many checkpoints as the first place does."""

    def __init__(self, tiers: Sequence[Tier], keep: int) -> None:
        self.tiers, self._keep = tuple(tiers), keep

    def elsewhere(self) -> set[str]:
        """What the tiers have, as far as they can be reached: to save, none must be.

        What was only begun counts: under its name a tier may have other bytes.
        """
        found: set[str] = set()
        for tier in self.tiers:
            try:
                found.update(tier.names(), tier.unfinished())
            except Exception:  # noqa: BLE001, S112  # one that is away keeps nothing from being saved
                continue
        return found

    def known(self, here: Collection[str]) -> list[str]:
        """Every checkpoint, `here` or in a tier, the last one saved first.

        A tier that is away raises only where nothing is known without it.
        """
        names = set(here)
        for tier in self.tiers:
            try:
                names.update(tier.names())
            except Exception:
                if not names:
                    raise
        return sorted(names, key=number, reverse=True)

    def push(
        self, world: World, folder: Path, *, urgent: bool, distrusted: Collection[str]
    ) -> tuple[str, ...]:
        """Fill the tiers; what went wrong. One that fails costs its copy, not the checkpoint."""
        problems = []
        for tier in self.tiers:
            if urgent and not tier.outlives_notice:
                continue
            try:
                self._fill(world, folder, tier, sure=not urgent)
                if not urgent:
                    on_rank_0(world, lambda tier=tier: self._prune(tier, distrusted))  # type: ignore[misc]  # mypy can't infer a default
            except CheckpointFailed as error:
                problems.append(f"{folder.name} is not in {type(tier).__name__}: {error}")
        return tuple(problems)

    def fetch(self, world: World, folder: Path, tier: Tier) -> bool:
        """Have `folder` be the copy that `tier` has; False: it has none."""
        if not on_rank_0(world, lambda: folder.name in tier.names()):
            return False
        content = on_rank_0(world, lambda: _clear_for(tier, folder))
        files = everywhere_own(world, lambda: manifest.parse(folder.name, content).files)
        everywhere(world, lambda: tier.fetch(folder.name, files[world.rank :: world.size], folder))
        on_rank_0(world, lambda: _commit(folder, content))
        return True

    def _fill(self, world: World, folder: Path, tier: Tier, *, sure: bool) -> None:
        """`sure`: older ones will go for it, so what arrived is looked at before it counts."""

        def part() -> None:
            tier.push(folder, manifest.read(folder).files[world.rank :: world.size])

        everywhere(world, part)
        if sure:
            everywhere(world, part)
        on_rank_0(world, lambda: tier.commit(folder))

    def _prune(self, tier: Tier, distrusted: Collection[str]) -> None:
        names = sorted(tier.names(), key=number)
        trusted = [name for name in names if name not in distrusted][-self._keep :]
        # What a kill left half done is of no use once a newer one is there, and is paid for.
        left = [name for name in tier.unfinished() if names and number(name) < number(names[-1])]
        for name in (*left, *names):
            if name not in trusted:
                tier.remove(name)


def _clear_for(tier: Tier, folder: Path) -> bytes:
    _, content = tier.manifest(folder.name)
    if folder.exists():
        manifest.remove(folder, rmtree=shutil.rmtree)
    folder.mkdir(parents=True)
    return content


def _commit(folder: Path, content: bytes) -> None:
    fsync_directory(folder)
    write_atomic(folder / MANIFEST, content)
    fsync_directory(folder.parent)
    manifest.seal(folder, content)
