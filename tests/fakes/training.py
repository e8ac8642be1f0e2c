"""Stand-ins without torch and sockets.

State is JSON, and ranks are threads.
"""

import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from toolkit.training.checkpoint.hashed_file import HashingWriter, read_file
from toolkit.training.io.durable_files import encode_line, read_json
from toolkit.training.run_folder.attempts import AttemptRecord
from toolkit.training.tracking.tracker import TrackingRecord


@dataclass
class Part:
    """A part of a training that has a state."""

    value: dict[str, Any] = field(default_factory=dict)

    def state_dict(self):
        return dict(self.value)

    def load_state_dict(self, state):
        self.value = dict(state)


class JsonCodec:
    """A codec of JSON files.

    Rank 0 writes the parts, and every rank a file of its own.
    """

    def stage(self, parts, world, *, copy):
        return {name: part.state_dict() for name, part in parts.items()}

    def write(self, folder: Path, staged, world):
        entries = [self._save(folder / f"rank-{world.rank}.json", {"rank": world.rank})]
        if world.rank == 0:
            entries.append(self._save(folder / "shared.json", staged))
        return entries

    def read(self, folder: Path, manifest, parts, world):
        content = read_file(folder, manifest.entry("shared.json"))
        state = read_json(folder / "shared.json")
        assert encode_line(state) == content

        def apply():
            for name, part in parts.items():
                part.load_state_dict(state[name])

        return apply

    def _save(self, path: Path, value):
        with HashingWriter(path) as writer:
            writer.write(encode_line(value))
        return writer.entry()


class Weights:
    """A part whose state is bytes."""

    def __init__(self, content=b"") -> None:
        self.content = content


class BytesCodec:
    """A codec that writes one file, as large as the bytes."""

    def stage(self, parts, world, *, copy):
        return parts["model"].content

    def write(self, folder, staged, world):
        with HashingWriter(folder / "weights.bin") as writer:
            writer.write(staged)
        return [writer.entry()]

    def read(self, folder, manifest, parts, world):
        content = read_file(folder, manifest.entry("weights.bin"))
        return lambda: setattr(parts["model"], "content", content)


class Meeting:
    """The exchange of values between ranks that are threads.

    A rank that dies breaks it for all.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.barrier = threading.Barrier(size, timeout=30)
        self.values: list[Any] = [None] * size

    def fork(self, rank: int) -> "Meeting":
        return self.exchange(rank, Meeting(self.size) if rank == 0 else None)[0]

    def exchange(self, rank: int, value: Any) -> list[Any]:
        self.barrier.wait()
        self.values[rank] = value
        self.barrier.wait()
        result = list(self.values)
        self.barrier.wait()
        return result


@dataclass
class ThreadWorld:
    rank: int
    meeting: Meeting

    @property
    def size(self):
        return self.meeting.size

    @property
    def local_rank(self):
        return self.rank

    @property
    def torch_group(self):
        return None

    def fork(self):
        return ThreadWorld(self.rank, self.meeting.fork(self.rank))

    def broadcast(self, value):
        return self.meeting.exchange(self.rank, value)[0]

    def gather(self, value):
        return self.meeting.exchange(self.rank, value)

    def start_sum(self, values):
        columns = zip(*self.meeting.exchange(self.rank, tuple(values)), strict=True)
        result = tuple(sum(column) for column in columns)
        return lambda: result

    def close(self):
        return


def run_ranks(size: int, work):
    """Run `work(world)` on every rank and return the results in order.

    An exception is a result too.
    """
    meeting = Meeting(size)
    results: list[Any] = [None] * size

    def run_rank(rank: int) -> None:
        try:
            results[rank] = work(ThreadWorld(rank, meeting))
        except BaseException as error:  # noqa: BLE001  # SystemExit is a result too
            results[rank] = error

    threads = [threading.Thread(target=run_rank, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


@dataclass
class MemoryTracker:
    records: list[TrackingRecord] = field(default_factory=list)
    closed: bool = False

    def add(self, record):
        assert not self.closed
        self.records.append(record)

    def close(self, timeout):
        self.closed = True
        return True

    @property
    def tags(self):
        return {name: value for record in self.records for name, value in record.tags.items()}

    @property
    def statuses(self):
        return [record.status for record in self.records if record.status]


@pytest.fixture
def part():
    return Part


@pytest.fixture
def json_codec():
    return JsonCodec()


@pytest.fixture
def ranks():
    return run_ranks


def attempt(cause: str, hours: float, instances: int = 1) -> AttemptRecord:
    """Return a record of the attempts file with this cause and duration."""
    return AttemptRecord(
        attempt=0,
        job_id="1",
        restart_count=0,
        started_at=0.0,
        ended_at=hours * 3600,
        seconds=hours * 3600,
        cause=cause,
        step_start=0,
        step_end=0,
        world_size=instances,
        nodes=tuple(f"n{i}" for i in range(instances)),
        instances=(),
        cost_usd=None,
    )
