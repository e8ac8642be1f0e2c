"""What a checkpoint holds, in torch's terms: parts that have a state_dict, and every rank's RNG.

`TorchCodec` has rank 0 write one file of shared state and every rank a file of its own. Sharded
state (torch.distributed.checkpoint, DeepSpeed) is another codec behind the same two methods.
"""

import io
import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from toolkit.training.manifest import Corrupt, FileEntry, HashingWriter, Manifest, read_file

Parts = Mapping[str, Any]  # name → something with state_dict() and load_state_dict()


class Codec(Protocol):
    """How the parts of one rank become files and come back."""

    def write(self, folder: Path, parts: Parts, *, rank: int) -> list[FileEntry]:
        """Write this rank's files, each durable on return."""
        ...

    def read(
        self, folder: Path, manifest: Manifest, parts: Parts, *, rank: int
    ) -> Callable[[], None]:
        """Read and check this rank's share. Nothing changes until the returned call is made."""
        ...


class TorchCodec:
    """For parts that are whole on every rank, as with DDP."""

    def write(self, folder: Path, parts: Parts, *, rank: int) -> list[FileEntry]:
        entries = [_save(folder / _rank_file(rank), {"rng": capture_rng()})]
        if rank == 0:
            state = {name: _whole(part).state_dict() for name, part in parts.items()}
            entries.append(_save(folder / "shared.pt", state))
        return entries

    def read(
        self, folder: Path, manifest: Manifest, parts: Parts, *, rank: int
    ) -> Callable[[], None]:
        shared = _load(folder, manifest, "shared.pt")
        missing = [name for name in parts if name not in shared]
        if missing:
            raise Corrupt(f"{folder.name}: holds no {', '.join(missing)}")
        own = None
        if manifest.entry(_rank_file(rank)):  # a rank that is new has no RNG state to take up
            own = _load(folder, manifest, _rank_file(rank))

        def apply() -> None:
            for name, part in parts.items():
                _whole(part).load_state_dict(shared[name])
            if own:
                restore_rng(own["rng"])

        return apply


def capture_rng() -> dict[str, Any]:
    """The state of every generator a training step may draw from."""
    import numpy as np
    import torch

    drawn: Any = np.random.get_state()  # noqa: NPY002  # the one scripts draw from
    name, keys, position, has_gauss, cached = drawn
    state: dict[str, Any] = {
        "python": random.getstate(),
        "numpy": (name, keys.tolist(), position, has_gauss, cached),
        "torch": torch.get_rng_state(),
    }
    if torch.cuda.is_available():
        state["cuda"] = torch.cuda.get_rng_state()
    return state


def restore_rng(state: Mapping[str, Any]) -> None:
    """Put every generator back to where `capture_rng` found it."""
    import numpy as np
    import torch

    version, internal, gauss = state["python"]
    random.setstate((version, tuple(internal), gauss))
    name, keys, position, has_gauss, cached = state["numpy"]
    np.random.set_state((name, np.array(keys, dtype=np.uint32), position, has_gauss, cached))  # noqa: NPY002  # as above
    torch.set_rng_state(state["torch"])
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["cuda"])


def _save(path: Path, value: Any) -> FileEntry:
    import torch

    with HashingWriter(path) as writer:
        torch.save(value, writer)
    return writer.entry()


def _load(folder: Path, manifest: Manifest, name: str) -> Any:
    import torch

    entry = manifest.entry(name)
    if entry is None:
        raise Corrupt(f"{folder.name}: has no {name}")
    content = io.BytesIO(read_file(folder, entry))
    # weights_only: a checkpoint is data. Nothing in it may run.
    return torch.load(content, map_location="cpu", weights_only=True)


def _whole(part: Any) -> Any:
    """The model inside DDP, so that a checkpoint loads with and without the wrapper."""
    from torch.nn.parallel import DistributedDataParallel

    return part.module if isinstance(part, DistributedDataParallel) else part


def _rank_file(rank: int) -> str:
    return f"rank-{rank:05d}.pt"
