"""A stateful test of the dataset cache.

The visible content is always whole and right, and the cache stays within its limit. The rules are
fills, evictions, readers that hold a dataset, sources with wrong bytes, and full disks. A kill
strikes at any file operation: before it, halfway through it or after it.
"""

from __future__ import annotations

import tempfile
from contextlib import suppress
from pathlib import Path

from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.fakes.datasets import MemorySource, described, tree
from tests.fakes.disk import WHEN, FullDisk, Killed, MortalDisk, QuickDisk
from toolkit.datasets import chunks
from toolkit.datasets.cache.cache import Cache
from toolkit.datasets.errors import CacheFull, ContentCorrupt, DataStopped
from toolkit.datasets.store.manifest import BLOCK

CONTENTS = [
    {"a": b"", "b/c": bytes(range(100))},
    {"big": bytes(index % 251 for index in range(1000)), "b/d/e": b"small"},
    {"one": b"x" * 64, "two": b"x" * 64, "three": b"y" * 129},
    {f"many/{index}": bytes([index]) * index for index in range(6)},
]
SMALL_CHUNK = 128
LIMIT = 20 * BLOCK
DATASETS = st.integers(0, len(CONTENTS) - 1)


def no_waiting(_: float) -> None:
    raise AssertionError("nobody else is at work, and yet there was a wait")


class CacheMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self._chunk, chunks.CHUNK = chunks.CHUNK, SMALL_CHUNK
        self._folder = tempfile.TemporaryDirectory()
        self.root = Path(self._folder.name)
        self.manifests = [described(content) for content in CONTENTS]
        self.held: list[tuple[int, object]] = []

    def teardown(self) -> None:
        try:
            self.release_all()
            for number in range(len(CONTENTS)):  # after all that, each dataset can be held
                self.hold(number)
                self.release_all()
            self.all_that_is_seen_is_right()
        finally:
            chunks.CHUNK = self._chunk
            self._folder.cleanup()

    def cache(self, disk=None) -> Cache:
        return Cache(self.root, limit=LIMIT, disk=disk or QuickDisk(), sleep=no_waiting)

    @rule(number=DATASETS)
    def hold(self, number: int) -> None:
        """Hold a dataset, unless the held ones leave too little space."""
        source = MemorySource(CONTENTS[number])
        needed = {one for one, _ in self.held} | {number}
        fits = sum(self.manifests[one].footprint for one in needed) <= LIMIT
        try:
            held = self.cache().hold(self.manifests[number].version, source.opened)
        except CacheFull:
            assert not fits
        else:
            assert fits
            self.held.append((number, held))

    @rule(number=DATASETS, fatal=st.integers(0, 60), when=st.sampled_from(WHEN))
    def killed_while_it_fills(self, number: int, fatal: int, when: str) -> None:
        source = MemorySource(CONTENTS[number])
        with suppress(Killed, CacheFull):
            cache = self.cache(MortalDisk(fatal, when))
            cache.hold(self.manifests[number].version, source.opened).release()

    @rule(number=DATASETS, fatal=st.integers(0, 12), when=st.sampled_from(WHEN))
    def killed_while_it_evicts(self, number: int, fatal: int, when: str) -> None:
        with suppress(Killed):
            self.cache(MortalDisk(fatal, when)).evict(self.manifests[number].version)

    @rule(number=DATASETS, checks_before_stop=st.integers(0, 4))
    def stopped_while_it_fills(self, number: int, checks_before_stop: int) -> None:
        remaining_checks = [checks_before_stop]

        def stop() -> bool:
            remaining_checks[0] -= 1
            return remaining_checks[0] < 0

        try:
            source = MemorySource(CONTENTS[number])
            held = self.cache().hold(
                self.manifests[number].version, source.opened, should_stop=stop
            )
        except (DataStopped, CacheFull):
            return
        held.release()

    @rule(number=DATASETS)
    def a_source_that_lies(self, number: int) -> None:
        """Fill from a source with a wrong bit, which must stay invisible.

        The size of the file is right.
        """
        path = next(path for path, data in CONTENTS[number].items() if data)
        source = MemorySource(CONTENTS[number], flipped=(path,))
        # No error comes if the dataset is cached, or if an earlier try left the right bytes of the
        # file.
        with suppress(ContentCorrupt, CacheFull):
            self.cache().hold(self.manifests[number].version, source.opened).release()

    @rule(number=DATASETS, room=st.integers(0, 1200))
    def a_disk_that_fills_up(self, number: int, room: int) -> None:
        source = MemorySource(CONTENTS[number])
        with suppress(CacheFull):
            cache = self.cache(FullDisk(room))
            cache.hold(self.manifests[number].version, source.opened).release()

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def release(self, data) -> None:
        number = data.draw(st.integers(0, len(self.held) - 1))
        self.held.pop(number)[1].release()

    @rule(number=DATASETS)
    def evict(self, number: int) -> None:
        """Evict a dataset; one in use stays."""
        evicted = self.cache().evict(self.manifests[number].version)
        assert evicted == (number not in {one for one, _ in self.held})

    @invariant()
    def all_that_is_seen_is_right(self) -> None:
        by_name = {one.version.removeprefix("sha256:"): at for at, one in enumerate(self.manifests)}
        entries = self.root / "entries"
        for folder in entries.iterdir() if entries.is_dir() else ():
            assert tree(folder / "data") == CONTENTS[by_name[folder.name]]

    @invariant()
    def what_is_held_is_there(self) -> None:
        for number, held in self.held:
            assert tree(held.path) == CONTENTS[number]

    @invariant()
    def it_stays_within_its_limit(self) -> None:
        cache = self.cache()
        assert cache.used_bytes <= LIMIT
        contents = [*tree(self.root / "entries").values(), *tree(self.root / "filling").values()]
        assert sum(len(content) for content in contents) <= cache.used_bytes

    def release_all(self) -> None:
        while self.held:
            self.held.pop()[1].release()


TestCache = CacheMachine.TestCase
TestCache.settings = settings(settings.default, max_examples=25, stateful_step_count=20)
