"""Counts of a cache's requests, in one small file that outlives the jobs."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

from toolkit.datasets.filesystem import Disk
from toolkit.datasets.locks import Lock
from toolkit.training.io.durable_files import encode_line, read_json


@dataclass(frozen=True, slots=True)
class Stats:
    """Counts since the cache began. Each request is one of `hits`, `joined` and `fills`."""

    hits: int = 0  # requests whose dataset was cached
    joined: int = 0  # requests that waited for another process's fill
    fills: int = 0  # requests that filled the entry themselves
    fetched_bytes: int = 0
    fill_seconds: float = 0.0
    evictions: int = 0
    evicted_bytes: int = 0

    @property
    def requests(self) -> int:
        return self.hits + self.joined + self.fills

    @property
    def hit_ratio(self) -> float | None:
        """Return the share of requests that fetched nothing; None without any."""
        return (self.hits + self.joined) / self.requests if self.requests else None

    def plus(self, **counts: float) -> "Stats":
        return replace(
            self, **{name: getattr(self, name) + count for name, count in counts.items()}
        )


class StatsFile:
    """The counts of one cache, shared by all processes that use it."""

    def __init__(self, folder: Path, *, disk: Disk, sleep: Callable[[float], None]) -> None:
        self._path, self._lock = folder / "stats.json", folder / "stats.lock"
        self._disk, self._sleep = disk, sleep

    def read(self) -> Stats:
        """Return the counts so far; zeros when the file can't be read."""
        record = read_json(self._path) or {}
        try:
            return Stats(**{field.name: record[field.name] for field in fields(Stats)})
        except (KeyError, TypeError):
            return Stats()

    def add(self, **counts: float) -> None:
        with Lock(self._lock, sleep=self._sleep) as lock:
            lock.acquire_exclusive()
            self._disk.write_file(self._path, encode_line(asdict(self.read().plus(**counts))))
