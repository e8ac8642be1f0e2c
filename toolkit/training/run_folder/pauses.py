"""times.jsonl: how long training stood still, and for what; appended by rank 0."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from toolkit.training.io.durable_files import encode, read_lines

Kind = Literal["save", "restore"]


@dataclass(frozen=True, slots=True)
class Timing:
    """A pause that ended `at`. Of an asynchronous save, what training waited for: its beginning,
    and, as the next one's, its end.
    """

    attempt: int
    kind: Kind
    at: float
    seconds: float
    step: int


def append(path: Path, timing: Timing) -> None:
    """Add one. Not fsynced: a pause that is forgotten counts as training time, and that is all."""
    with path.open("ab") as stream:
        stream.write(encode(asdict(timing)))


def read(path: Path) -> tuple[Timing, ...]:
    """All of them; a line that a kill cut short is left out."""
    return tuple(_parsed(path))


def _parsed(path: Path) -> Iterator[Timing]:
    for line in read_lines(path):
        try:
            if line:
                yield Timing(**line)
        except TypeError:
            continue
