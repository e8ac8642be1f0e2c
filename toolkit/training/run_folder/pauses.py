"""Read and write times.jsonl: the pauses of training, and their reasons.

Rank 0 appends to it.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from toolkit.training.io.durable_files import encode, read_lines

Kind = Literal["save", "restore"]


@dataclass(frozen=True, slots=True)
class Timing:
    """A pause of training.

    An asynchronous save counts only as far as training waited for it. Training waits for its
    beginning, and for its end in the pause of the next save.
    """

    attempt: int
    kind: Kind
    at: float  # epoch seconds when it ended
    seconds: float
    step: int


def append(path: Path, timing: Timing) -> None:
    """Append a pause.

    It is not fsynced: a lost pause counts as training time, and does no other harm.
    """
    with path.open("ab") as stream:
        stream.write(encode(asdict(timing)))


def read(path: Path) -> tuple[Timing, ...]:
    """Return all pauses, without lines that a kill cut short."""
    return tuple(_parsed(path))


def _parsed(path: Path) -> Iterator[Timing]:
    for line in read_lines(path):
        try:
            if line:
                yield Timing(**line)
        except TypeError:
            continue
