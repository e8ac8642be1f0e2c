"""Turn the parts of a checkpoint and every rank's random state into files.

A part is an object that has a state_dict. With `TorchCodec`, rank 0 writes one file of shared state
and every rank a file of its own. Sharded state has other codecs, behind the same three methods:
`dcp_codec` (FSDP2), `deepspeed_codec`.
"""

import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from toolkit.training.checkpoint.hashed_file import FileEntry, HashingWriter
from toolkit.training.checkpoint.manifest import Manifest
from toolkit.training.checkpoint.staging import Staging
from toolkit.training.distributed.process_group import ProcessGroup
from toolkit.training.errors import Corrupt

Parts = Mapping[str, Any]  # name → an object with state_dict() and load_state_dict()


class Codec(Protocol):
    """A codec between the parts of one rank and files. Every rank makes the same calls."""

    def stage(self, parts: Parts, world: ProcessGroup, *, copy: bool) -> Any:
        """Return this rank's share of the state.

        With `copy` it is a copy, so that training can go on before it is written. The copy reuses
        the memory of the call before, whose state must be written by then.
        """
        ...

    def write(self, folder: Path, staged: Any, world: ProcessGroup) -> list[FileEntry]:
        """Write this rank's files, each durable on return."""
        ...

    def read(
        self, folder: Path, manifest: Manifest, parts: Parts, world: ProcessGroup
    ) -> Callable[[], None]:
        """Read this rank's share, without changing a part.

        Returns a function that changes the parts. After an error in it they are good for nothing
        but another `read`. No byte goes into a part that differs from the saved one.
        """
        ...


class TorchCodec:
    """A codec for parts that are whole on every rank, as with DDP."""

    def __init__(self) -> None:
        self._staging = Staging()

    def stage(self, parts: Parts, world: ProcessGroup, *, copy: bool) -> Any:
        state: dict[str, Any] = {"rng": capture_rng()}
        # On every rank: the state_dict() of a trainer's part may be collective.
        states = {name: _unwrap_ddp(part).state_dict() for name, part in parts.items()}
        if world.rank == 0:
            state["parts"] = states
        return self._staging.copy(state) if copy else state

    def write(self, folder: Path, staged: Any, world: ProcessGroup) -> list[FileEntry]:
        entries = [save_file(folder / rank_file(world.rank), {"rng": staged["rng"]})]
        if world.rank == 0:
            entries.append(save_file(folder / "shared.pt", staged["parts"]))
        return entries

    def read(
        self, folder: Path, manifest: Manifest, parts: Parts, world: ProcessGroup
    ) -> Callable[[], None]:
        shared_states = load_file(folder, manifest, "shared.pt")
        missing = [name for name in parts if name not in shared_states]
        if missing:
            raise Corrupt(f"{folder.name}: has no state of {', '.join(missing)}")
        own_state = load_own(folder, manifest, world.rank)

        def apply() -> None:
            for name, part in parts.items():
                _unwrap_ddp(part).load_state_dict(shared_states[name])
            if own_state:
                restore_rng(own_state["rng"])

        return apply


def capture_rng() -> dict[str, Any]:
    """Return the state of every generator that a training step may use."""
    import numpy as np
    import torch

    numpy_state: Any = np.random.get_state()  # noqa: NPY002  # the one scripts draw from
    name, keys, position, has_gauss, cached = numpy_state
    state: dict[str, Any] = {
        "python": random.getstate(),
        "numpy": (name, keys.tolist(), position, has_gauss, cached),
        "torch": torch.get_rng_state(),
    }
    if torch.cuda.is_available():
        state["cuda"] = torch.cuda.get_rng_state()
    return state


def restore_rng(state: Mapping[str, Any]) -> None:
    """Set every generator to the state that `capture_rng` returned."""
    import numpy as np
    import torch

    version, internal, gauss = state["python"]
    random.setstate((version, tuple(internal), gauss))
    name, keys, position, has_gauss, cached = state["numpy"]
    np.random.set_state((name, np.array(keys, dtype=np.uint32), position, has_gauss, cached))  # noqa: NPY002  # as above
    torch.set_rng_state(state["torch"])
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["cuda"])


def save_file(path: Path, value: Any) -> FileEntry:
    """Save a value with torch.save, hashed and durable."""
    import torch

    with HashingWriter(path) as writer, without_crc():
        torch.save(value, writer)
    return writer.entry()


@contextmanager
def without_crc() -> Iterator[None]:
    """Have torch.save, in this thread, leave out its CRC-32.

    The manifest's hash says more, and the CRC would take two thirds of the hash's time. torch.load
    never reads it; `unzip` does, and complains.
    """
    from torch.serialization import get_crc32_options, set_crc32_options

    before = get_crc32_options()
    set_crc32_options(compute_crc32=False)
    try:
        yield
    finally:
        set_crc32_options(before)


def load_file(folder: Path, manifest: Manifest, name: str) -> Any:
    """Load a file of `save_file`, with every byte verified.

    Raises Corrupt.
    """
    import torch

    with manifest.open(folder, name) as stream:
        # weights_only: a checkpoint is data. Nothing in it may run.
        return torch.load(stream, map_location="cpu", weights_only=True)


def load_own(folder: Path, manifest: Manifest, rank: int) -> Any:
    """Load this rank's own file, or return None.

    None for a rank that is new in the run.
    """
    name = rank_file(rank)
    return load_file(folder, manifest, name) if manifest.entry(name) else None


def rank_file(rank: int) -> str:
    return f"rank-{rank:05d}.pt"


def _unwrap_ddp(part: Any) -> Any:
    """Return the model inside DDP.

    So a checkpoint loads with and without the wrapper.
    """
    from torch.nn.parallel import DistributedDataParallel

    return part.module if isinstance(part, DistributedDataParallel) else part
