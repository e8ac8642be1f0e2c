"""Save DeepSpeed's state (ZeRO 1, 2 and 3) by `engine.save_checkpoint` and `load_checkpoint`.

Every rank's files go through the manifest, as in the other codecs. For a load on another number of
ranks, the checkpoint is first rewritten as DeepSpeed's universal one. The copy lies beside it, in a
folder of the attempt's own, while the load lasts. It takes the checkpoint's size again on the
shared filesystem.

DeepSpeed's files are pickles. They are read only after every byte was verified.
"""

import os
import shutil
import tempfile
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from pathlib import Path
from typing import Any

import torch
from deepspeed.checkpoint import ds_to_universal
from deepspeed.runtime.checkpoint_engine.checkpoint_engine import CheckpointEngine

from toolkit.training.attempt.attempt import current
from toolkit.training.attempt.fencing import Fence
from toolkit.training.checkpoint.collective import rank0_only
from toolkit.training.checkpoint.hashed_file import FileEntry, verify_file
from toolkit.training.checkpoint.manifest import Manifest
from toolkit.training.checkpoint.staging import Staging
from toolkit.training.checkpoint.torch_codec import (
    Parts,
    capture_rng,
    load_own,
    rank_file,
    restore_rng,
    save_file,
)
from toolkit.training.distributed.process_group import ProcessGroup
from toolkit.training.errors import Corrupt


class DeepSpeedCodec:
    """A codec for one DeepSpeed engine, which holds model and optimizer.

    The other parts are shared by all ranks. `fence` is the attempt's; by default it is that of this
    process's attempt.
    """

    def __init__(self, fence: Fence | None = None) -> None:
        self._fence = fence or current().fence
        self._staging = Staging()

    def stage(self, parts: Parts, world: ProcessGroup, *, copy: bool) -> Any:  # noqa: ARG002  # the codec's shape
        name, engine = _engine(parts)
        other_states = {key: part.state_dict() for key, part in parts.items() if key != name}
        state = {
            "own": {"rng": capture_rng(), "others": other_states},
            "files": _engine_files(engine),
        }
        return self._staging.copy(state) if copy else state

    def write(self, folder: Path, staged: Any, world: ProcessGroup) -> list[FileEntry]:
        entries = [save_file(folder / rank_file(world.rank), staged["own"])]
        entries += [save_file(folder / name, state) for name, state in staged["files"].items()]
        return entries

    def read(
        self, folder: Path, manifest: Manifest, parts: Parts, world: ProcessGroup
    ) -> Callable[[], None]:
        name, engine = _engine(parts)
        own_state = load_own(folder, manifest, world.rank)
        other_states = (own_state or load_own(folder, manifest, 0) or {}).get("others", {})
        missing = [key for key in parts if key != name and key not in other_states]
        if missing:
            raise Corrupt(f"{folder.name}: has no state of {', '.join(missing)}")

        def apply() -> None:
            rank0_only(world, lambda: _delete_universal_copies(folder.parent, self._fence))
            if manifest.facts["world_size"] == world.size:
                with _with_storage(engine, _VerifiedStorage(folder, manifest)):
                    _load(engine, folder)
            else:
                conversion = _universal(folder, manifest, world, self._fence)
                with conversion as universal_folder, _loading_universal(engine):
                    _load(engine, universal_folder)
            for key, state in other_states.items():
                if key in parts:
                    parts[key].load_state_dict(state)
            if own_state:
                restore_rng(own_state["rng"])

        return apply


def _engine(parts: Parts) -> tuple[str, Any]:
    engines = [(name, part) for name, part in parts.items() if hasattr(part, "save_checkpoint")]
    if len(engines) != 1:
        raise ValueError(
            f"DeepSpeedCodec saves exactly one DeepSpeed engine; the parts have {len(engines)}"
        )
    return engines[0]


def _engine_files(engine: Any) -> dict[str, Any]:
    """Return the files that the engine would write on this rank.

    They are named, and not yet written.
    """
    storage = _CapturingStorage()
    with tempfile.TemporaryDirectory(prefix="toolkit-") as folder, _with_storage(engine, storage):
        # It writes its conversion scripts to the folder; they come with DeepSpeed anyway.
        engine.save_checkpoint(folder, tag="step", save_latest=False)
    return storage.files


def _load(engine: Any, folder: Path) -> None:
    path, _ = engine.load_checkpoint(str(folder.parent), tag=folder.name)
    if path is None:
        raise Corrupt(f"{folder.name}: DeepSpeed found no checkpoint of its own in this folder")


@contextmanager
def _with_storage(engine: Any, storage: CheckpointEngine) -> Iterator[None]:
    """Have the engine write to, or read from, `storage`."""
    original, engine.checkpoint_engine = engine.checkpoint_engine, storage
    try:
        yield
    finally:
        engine.checkpoint_engine = original


class _NullStorage(CheckpointEngine):  # type: ignore[misc]  # DeepSpeed is not analysed
    """A storage that does nothing, with the methods that DeepSpeed calls."""

    def create(self, info: Any) -> None:  # noqa: ARG002  # DeepSpeed's shape, as below
        return

    def commit(self, info: Any) -> bool:  # noqa: ARG002
        return True

    def makedirs(self, path: str, exist_ok: bool = False) -> None:  # noqa: ARG002
        return

    def save(self, state_dict: Any, path: str) -> None:
        raise NotImplementedError(path)

    def load(self, path: str, map_location: Any = None) -> Any:
        raise NotImplementedError(path, map_location)


class _CapturingStorage(_NullStorage):
    def __init__(self) -> None:
        super().__init__()
        self.files: dict[str, Any] = {}

    def save(self, state_dict: Any, path: str) -> None:
        self.files[Path(path).name] = state_dict


class _VerifiedStorage(_NullStorage):
    def __init__(self, folder: Path, manifest: Manifest) -> None:
        super().__init__()
        self._folder, self._manifest = folder, manifest

    def load(self, path: str, map_location: Any = None) -> Any:
        with self._manifest.open(self._folder, Path(path).name) as stream:
            return torch.load(stream, map_location=map_location, weights_only=False)


_UNIVERSAL_PREFIX = ".universal."


def _delete_universal_copies(root: Path, fence: Fence) -> None:
    """Delete the universal copies of earlier attempts.

    An attempt leaves one when it is killed as it loads. A superseded attempt may still read one.
    Raises Superseded, with nothing deleted, when this attempt has lost the run.
    """
    for path in root.glob(f"{_UNIVERSAL_PREFIX}*"):
        with suppress(OSError):  # a copy that stays costs space
            shutil.rmtree(fence.move_to_trash(path), ignore_errors=True)


@contextmanager
def _universal(
    folder: Path, manifest: Manifest, world: ProcessGroup, fence: Fence
) -> Iterator[Path]:
    """Yield the checkpoint in DeepSpeed's universal form.

    It loads on any number of ranks. It is deleted at the end of the context.
    """
    # Not in the fence: DeepSpeed makes missing folders, and would make a deleted fence again.
    name = fence.folder.name if fence.folder else "local"
    attempt_folder = folder.with_name(f"{_UNIVERSAL_PREFIX}{name}")
    try:
        rank0_only(world, lambda: _convert(folder, manifest, attempt_folder / folder.name))
        yield attempt_folder / folder.name
    except Exception:
        fence.check()  # if the next attempt has deleted the copy, it is no damage
        raise
    finally:
        world.gather(None)  # all have read it
        if world.rank == 0:
            shutil.rmtree(attempt_folder, ignore_errors=True)


def _convert(folder: Path, manifest: Manifest, target: Path) -> None:
    for entry in manifest.files:  # DeepSpeed reads the files itself, so all are checked before
        verify_file(folder, entry)
        manifest.verified_blocks.update((entry.name, number) for number in range(len(entry.blocks)))
    options = Namespace(
        input_folder=str(folder),
        output_folder=str(target),
        num_extract_workers=1,  # more workers would be processes, forked from one that has threads
        num_merge_workers=1,
        keep_temp_folder=False,
        strict=True,
        inject_missing_state=True,
    )
    with Path(os.devnull).open("w") as devnull, redirect_stdout(devnull):
        ds_to_universal.main(options)


@contextmanager
def _loading_universal(engine: Any) -> Iterator[None]:
    original = engine._config.load_universal_checkpoint  # noqa: SLF001  # only the user's file sets it
    engine._config.load_universal_checkpoint = True  # noqa: SLF001  # as above
    try:
        yield
    finally:
        engine._config.load_universal_checkpoint = original  # noqa: SLF001  # as above
