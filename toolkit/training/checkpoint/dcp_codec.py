"""Save state that is spread over the ranks by torch.distributed.checkpoint (DCP): FSDP2, DDP,
plain.

Every rank writes its own shards, and a checkpoint loads on any number of ranks. On disk it is an
ordinary DCP checkpoint with a manifest beside it: `dcp.load` and torch's converters read it.
"""

import io
import warnings
from collections.abc import Callable, Collection, Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.filesystem import FileSystem
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.checkpoint.state_dict_loader import load as dcp_load
from torch.distributed.checkpoint.state_dict_saver import save as dcp_save

from toolkit.training.checkpoint.hashed_file import FileEntry, HashingWriter
from toolkit.training.checkpoint.manifest import Manifest
from toolkit.training.checkpoint.staging import Staging
from toolkit.training.checkpoint.torch_codec import (
    Parts,
    capture_rng,
    load_own,
    rank_file,
    restore_rng,
    save_file,
    without_crc,
)
from toolkit.training.distributed.process_group import ProcessGroup
from toolkit.training.errors import Corrupt, Unreadable
from toolkit.training.io.durable_files import fsync_directory

# Keys all of an optimizer's state by its parameters' names. Ranks may then have different
# parameters, as the stages of a pipeline do.
_BY_NAME = StateDictOptions(flatten_optimizer_state_dict=True)


class DcpCodec:
    """A codec that saves models and optimizers by their shards.

    The other parts are equal on all ranks, and rank 0 saves them.
    """

    def __init__(self) -> None:
        self._staging = Staging()

    def stage(self, parts: Parts, world: ProcessGroup, *, copy: bool) -> Any:  # noqa: ARG002  # the codec's shape
        tensors, fresh_optimizers = _capture(parts)
        other_states = {
            name: part.state_dict() for name, part in parts.items() if _is_plain_part(part)
        }
        state = {
            "tensors": tensors,
            "own": {"rng": capture_rng(), "others": other_states, "new": fresh_optimizers},
        }
        return self._staging.copy(state) if copy else state

    def write(self, folder: Path, staged: Any, world: ProcessGroup) -> list[FileEntry]:
        entries = [save_file(folder / rank_file(world.rank), staged["own"])]
        writer = dcp.FileSystemWriter(folder, sync_files=False, per_thread_copy_ahead=0)
        disk = _HashingDisk()
        writer.fs = disk
        with _unwrap_errors(), without_crc():
            dcp_save(
                staged["tensors"],
                storage_writer=writer,
                process_group=world.torch_group,
                no_dist=world.torch_group is None,
            )
        return entries + disk.entries()

    def read(
        self, folder: Path, manifest: Manifest, parts: Parts, world: ProcessGroup
    ) -> Callable[[], None]:
        own_state = load_own(folder, manifest, world.rank) or {}
        shared_state = own_state or load_own(folder, manifest, 0) or {}
        missing = [name for name, part in parts.items() if _is_plain_part(part)]
        missing = [name for name in missing if name not in shared_state.get("others", {})]
        if missing:
            raise Corrupt(f"{folder.name}: has no state of {', '.join(missing)}")

        def apply() -> None:
            _load_tensors(folder, manifest, parts, world, shared_state["new"])
            for name, state in {**shared_state["new"], **shared_state["others"]}.items():
                if name in parts:
                    parts[name].load_state_dict(state)
            if "rng" in own_state:
                restore_rng(own_state["rng"])

        return apply


def _capture(parts: Parts) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the state of models and optimizers, and fresh optimizers' apart.

    A fresh optimizer has made no step. torch would make it one step if it were asked for the state.
    """
    optimizer_states = {
        name: part.state_dict() for name, part in parts.items() if _is_optimizer(part)
    }
    fresh_optimizers = {
        name: state for name, state in optimizer_states.items() if not state["state"]
    }
    state: dict[str, Any] = {}
    for name, part in parts.items():
        if _is_model(part):
            state[name] = get_model_state_dict(part)
        elif _is_optimizer(part) and name not in fresh_optimizers:
            state[name] = get_optimizer_state_dict(_model_of(part, parts), part, options=_BY_NAME)
    return state, fresh_optimizers


def _load_tensors(
    folder: Path,
    manifest: Manifest,
    parts: Parts,
    world: ProcessGroup,
    fresh_optimizers: Collection[str],
) -> None:
    sharded_parts = {
        name: part
        for name, part in parts.items()
        if _is_model(part) or (_is_optimizer(part) and name not in fresh_optimizers)
    }
    # An optimizer without state gets a state of the right shape here, to load into.
    state = {
        name: get_model_state_dict(part)
        if _is_model(part)
        else get_optimizer_state_dict(_model_of(part, parts), part, options=_BY_NAME)
        for name, part in sharded_parts.items()
    }
    reader = _OrderedReader(folder)
    disk = reader.fs = _VerifiedDisk(folder, manifest)
    with _unwrap_errors(disk.errors):
        dcp_load(
            state,
            storage_reader=reader,
            planner=_DataOnlyPlanner(),
            process_group=world.torch_group,
            no_dist=world.torch_group is None,
        )
    for name, part in sharded_parts.items():
        if _is_model(part):
            set_model_state_dict(part, state[name])
        else:
            set_optimizer_state_dict(
                _model_of(part, parts), part, optim_state_dict=state[name], options=_BY_NAME
            )


class _HashingDisk(FileSystem):  # type: ignore[misc]  # torch is not analysed
    """A filesystem for DCP's writes: every file is hashed on its way, and durable when closed."""

    def __init__(self) -> None:
        self._entries: dict[str, FileEntry] = {}

    def entries(self) -> list[FileEntry]:
        return list(self._entries.values())

    @contextmanager
    def create_stream(self, path: Any, mode: str) -> Generator[Any, None, None]:
        if mode != "wb":
            raise ValueError(f"{path}: opened with {mode!r} during a save")
        with HashingWriter(Path(path)) as writer:
            yield writer
        entry = writer.entry()
        self._entries[entry.name] = entry

    def rename(self, path: Any, new_path: Any) -> None:
        entry = self._entries.pop(Path(path).name)
        Path(path).replace(Path(new_path))
        fsync_directory(Path(new_path).parent)
        self._entries[Path(new_path).name] = replace(entry, name=Path(new_path).name)


class _VerifiedDisk(FileSystem):  # type: ignore[misc]  # torch is not analysed
    """A filesystem for DCP's reads: it returns only bytes that match the manifest."""

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self._folder, self._manifest = folder, manifest
        self.errors: list[Exception] = []  # errors that are no proof of damage

    @contextmanager
    def create_stream(self, path: Any, mode: str) -> Generator[Any, None, None]:
        if mode != "rb":
            raise ValueError(f"{path}: opened with {mode!r} during a load")
        try:
            with self._manifest.open(self._folder, Path(path).name) as stream:
                yield stream
        except (OSError, Unreadable) as error:
            self.errors.append(error)
            raise


class _OrderedReader(dcp.FileSystemReader):  # type: ignore[misc]  # torch is not analysed
    """A reader that reads each block once: it sorts the plan by the files' bytes."""

    def prepare_local_plan(self, plan: Any) -> Any:
        def place(item: Any) -> tuple[str, int]:
            info = self.storage_data[item.storage_index]
            return info.relative_path, info.offset

        return replace(plan, items=sorted(plan.items, key=place))


class _DataOnlyPlanner(DefaultLoadPlanner):  # type: ignore[misc]  # torch is not analysed
    """A load planner that unpickles nothing but data.

    torch's own planner loads values that are no tensors by pickle; a checkpoint is data.
    """

    def load_bytes(self, read_item: Any, value: io.BytesIO) -> None:
        content = torch.load(value, weights_only=True)
        buffer = io.BytesIO()
        torch.save(content, buffer)
        buffer.seek(0)
        super().load_bytes(read_item, buffer)


def _model_of(optimizer: Any, parts: Parts) -> Any:
    """Return the model whose parameters the optimizer steps."""
    parameter_ids = {id(value) for group in optimizer.param_groups for value in group["params"]}
    for part in parts.values():
        if _is_model(part) and parameter_ids <= {id(value) for value in part.parameters()}:
            return part
    raise ValueError("an optimizer steps parameters that are in no model of this checkpoint")


def _is_model(part: Any) -> bool:
    return isinstance(part, torch.nn.Module)


def _is_optimizer(part: Any) -> bool:
    return isinstance(part, torch.optim.Optimizer)


def _is_plain_part(part: Any) -> bool:
    return not _is_model(part) and not _is_optimizer(part)


@contextmanager
def _unwrap_errors(read_errors: Sequence[Exception] = ()) -> Generator[None, None, None]:
    """Replace DCP's own exception by the errors that caused it.

    DCP's exception is no Exception, and hides errors that must end the process. `read_errors`
    are this rank's, which DCP may have put into words of its own.
    """
    # A world of one rank is no mistake.
    warnings.filterwarnings("ignore", message="torch.distributed is disabled", category=UserWarning)
    try:
        yield
    except CheckpointException as error:
        causes = [cause for cause, _ in error.failures.values()]
        for cause in causes:
            if not isinstance(cause, Exception):
                raise cause from None
        raise _error_class([*causes, *read_errors])(
            "; ".join(sorted({str(cause) for cause in causes}))
        ) from error


def _error_class(causes: Sequence[BaseException]) -> type[Exception]:
    for kind in (Unreadable, OSError):
        if any(isinstance(cause, kind) for cause in causes):
            return kind
    return Corrupt if all(isinstance(cause, Corrupt) for cause in causes) else RuntimeError
