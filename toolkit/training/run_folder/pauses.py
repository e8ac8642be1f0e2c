"""Read and write times.jsonl: the pauses of training, and their reasons.

Rank 0 appends to it.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from toolkit.training.io.durable_files import encode_line, read_lines

Kind = Literal["save", "restore"]


@dataclass(frozen=True, slots=True)
class Pause:
    """A pause of training.

    An asynchronous save counts only as far as training waited for it. Training waits for its
    beginning, and for its end in the pause of the next save.
    """

    attempt: int
    kind: Kind
    at: float  # epoch seconds when it ended
    seconds: float
    step: int


def append(path: Path, pause: Pause) -> None:
    """Append a pause.

    It is not fsynced: a lost pause counts as training time, and does no other harm.
    """
    with path.open("ab") as stream:
        stream.write(encode_line(asdict(pause)))


def read(path: Path) -> tuple[Pause, ...]:
    """Return all pauses, without lines that a kill cut short."""
    return tuple(_parse_lines(path))


def _parse_lines(path: Path) -> Iterator[Pause]:
    for line in read_lines(path):
        try:
            if line:
                yield Pause(**line)
        except TypeError:
            continue
