"""The fault matrix with real tensors.

A load gives the last good state or a clear error, and never wrong numbers.
"""

import os
import random
import shutil
from collections import Counter
from contextlib import suppress
from functools import partial
from itertools import count
from pathlib import Path

import pytest
import torch

from tests.fakes import checkpoint_disk as disk, generators
from tests.fakes.training import JsonCodec, Part
from toolkit.training.attempt.fencing import Fence
from toolkit.training.checkpoint import hashed_file, manifest
from toolkit.training.checkpoint.checkpointer import Checkpointer
from toolkit.training.checkpoint.local_disk import ViaLocalDisk
from toolkit.training.checkpoint.save_schedule import Saver
from toolkit.training.checkpoint.torch_codec import TorchCodec
from toolkit.training.distributed.process_group import Solo
from toolkit.training.errors import CheckpointFailed, CheckpointUnreadable, Corrupt, Superseded

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")


@pytest.fixture(autouse=True)
def quick_disk(monkeypatch):
    """A disk without the wait of fsync.

    Faults strike at the call of fsync, and waiting for the disk proves nothing.
    """
    monkeypatch.setattr(os, "fsync", lambda _: None)


def parts():
    generators.seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Linear(8, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    return {
        "model": model,
        "optimizer": optimizer,
        "scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 1),
        "scaler": torch.amp.GradScaler("cpu", init_scale=2.0, growth_interval=1),
    }


def train(found):
    generators.draw()
    found["optimizer"].zero_grad()
    found["scaler"].scale(found["model"](torch.randn(5, 4)).sum()).backward()
    found["scaler"].step(found["optimizer"])
    found["scaler"].update()
    found["scheduler"].step()


def numbers(found):
    """Return all that a checkpoint must restore, as one flat list."""
    state = found["optimizer"].state_dict()["state"]
    tensors = [*found["model"].state_dict().values()]
    tensors += [value for values in state.values() for value in values.values()]
    return [value for tensor in tensors for value in tensor.flatten().tolist()] + [
        *found["scheduler"].get_last_lr(),
        found["scaler"].get_scale(),
        *generators.states(),
    ]


def codec(name):
    if name == "torch":
        return TorchCodec()
    from toolkit.training.checkpoint.dcp_codec import DcpCodec

    return DcpCodec()


@pytest.fixture(scope="module", params=["torch", "dcp"])
def kind(request):
    return request.param


def two_saves(root, kind):
    found, truth = parts(), {}
    for step in (1, 2):
        train(found)
        truth[step] = numbers(found)
        Checkpointer(root, Solo(), codec=codec(kind)).save(found, step=step, facts={})
    return root, truth


@pytest.fixture(scope="module")
def saved(kind, tmp_path_factory):
    """A folder with two checkpoints, and their numbers."""
    return two_saves(tmp_path_factory.mktemp(kind), kind)


@pytest.fixture(params=["3.13", "3.14"])
def pathlib_of(request, monkeypatch):
    if request.param == "3.14":
        disk.swallow_errors(monkeypatch)


@pytest.fixture
def small_blocks(monkeypatch):
    """Blocks so small that a file has several."""
    for module in (hashed_file, manifest):
        monkeypatch.setattr(module, "BLOCK", 8000)
    monkeypatch.setattr(hashed_file, "_LARGE_PIECE", 4000)


@pytest.fixture
def saved_in_blocks(kind, small_blocks, tmp_path):
    return two_saves(tmp_path / "saved", kind)


def load(root, kind):
    """Load into new parts, and return the step and all numbers."""
    found = parts()
    loaded = Checkpointer(root, Solo(), codec=codec(kind)).load(found)
    return loaded.facts["step"], numbers(found)


def files(root):
    return sorted(path for path in (root / "step-00000002.000002").iterdir())


@pytest.mark.parametrize("damage", ["flip", "cut", "grow", "missing", "zeros", "swap"])
def test_damage_anywhere_in_any_file_is_found_and_the_one_before_is_loaded(
    tmp_path, saved, kind, damage
):
    root, truth = saved
    draw = random.Random(f"{damage}{kind}")  # noqa: S311  # the same places every time
    for number, path in enumerate(files(root)):
        copy = tmp_path / str(number)
        shutil.copytree(root, copy)
        target = copy / path.relative_to(root)
        content = bytearray(target.read_bytes())
        at = draw.randrange(len(content))
        if damage == "flip":
            content[at] ^= 1 << draw.randrange(8)
        elif damage == "cut":
            del content[at:]
        elif damage == "grow":
            content += b"\0"
        elif damage == "zeros":
            content[at : at + 512] = bytes(len(content[at : at + 512]))
        elif damage == "swap":  # an older file of the same name, as a stale cache would give
            older = copy / "step-00000001.000001" / target.name
            content = bytearray(older.read_bytes())
        if damage == "missing":
            target.unlink()
        else:
            target.write_bytes(content)
        step, found = load(copy, kind)
        assert found == truth[step], target.name
        if bytes(content) != path.read_bytes() or damage == "missing":
            assert step == 1, f"{damage} in {target.name} was not found"


class Third:
    """A third save, from the same state, disturbed at each operation."""

    def __init__(self, root, truth, kind, scratch, *, local) -> None:
        self.root, self.truth, self.kind = root, truth, kind
        self.scratch, self.local = scratch, local
        self.found = parts()
        Checkpointer(root, Solo(), codec=codec(kind)).load(self.found)
        train(self.found)
        generators.seed(3)  # a load changes the generators
        truth[3] = numbers(self.found)
        self.steps = []

    def copy(self, number):
        return shutil.copytree(self.root, self.scratch / str(number))

    def save(self, copy):
        generators.seed(3)
        used = codec(self.kind)
        if not self.local:
            return Checkpointer(copy, Solo(), codec=used).save(self.found, step=3, facts={})
        used = ViaLocalDisk(used, self.scratch / "local", Solo())
        behind = Checkpointer(copy, Solo(), codec=used, background=True)
        behind.start_save(self.found, step=3, facts={})
        return behind.wait_for_save()

    def load(self, copy):
        """Return the loaded step, after a check of its numbers."""
        step, loaded = load(copy, self.kind)
        assert loaded == self.truth[step]
        shutil.rmtree(copy)
        self.steps.append(step)
        return step

    def numbers(self, *, slow=1):
        """Return the operations to strike.

        Every third one is enough for a save by way of the local disk. `slow` is the stride for DCP,
        whose saves are slow.
        """
        return range(1, 2000, 3 if self.local else 1 if self.kind == "torch" else slow)


@pytest.fixture(params=[False, True], ids=["shared", "via-local-disk"])
def third(request, saved_in_blocks, kind, tmp_path):
    return Third(*saved_in_blocks, kind, tmp_path, local=request.param)


def test_sigkill_at_any_file_operation_of_a_save_leaves_a_good_checkpoint(third):
    for number in third.numbers():
        copy = third.copy(number)
        struck = disk.killed(number, lambda copy=copy: third.save(copy))
        third.load(copy)
        if not struck:
            break
    steps = third.steps
    assert (len(steps) > 5, set(steps), steps) == (True, {2, 3}, sorted(steps))


@pytest.mark.parametrize("fault", [disk.tear, disk.fill])
def test_a_torn_write_or_a_full_disk_leaves_a_good_checkpoint_and_the_truth_is_told(third, fault):
    told = []
    for number in third.numbers(slow=3):
        copy = third.copy(number)
        with disk.strike(number, fault) as met:
            try:
                told.append(third.save(copy).step)
            except (disk.Killed, CheckpointFailed):
                told.append(None)
        assert third.load(copy) == 3 or told[-1] is None
        if len(met) < number:
            break
    assert (len(third.steps) > 5, set(third.steps), told[-1]) == (True, {2, 3}, 3)


@pytest.mark.parametrize("name", ["unlink", "rmdir"])
def test_what_can_not_be_deleted_costs_no_save(tmp_path, saved, kind, monkeypatch, name):
    shutil.copytree(saved[0], tmp_path / "copy")
    found = parts()
    checkpoints = Checkpointer(tmp_path / "copy", Solo(), codec=codec(kind))
    checkpoints.load(found)
    train(found)
    monkeypatch.setattr(os, name, lambda *args, **options: disk.fill(None, args))
    checkpoints.save(found, step=3, facts={})
    assert load(tmp_path / "copy", kind) == (3, numbers(found))


@pytest.mark.parametrize("background", [False, True])
def test_an_error_of_any_one_system_call_costs_a_periodic_save_at_most(tmp_path, background):
    saves = []
    for number in count(1):
        place = tmp_path / str(number) / "owner" / "12.0.first.ab"
        place.mkdir(parents=True)
        checkpoints = Checkpointer(
            place.parents[1], Solo(), codec=JsonCodec(), fence=Fence(place), background=background
        )
        saver = Saver(
            checkpoints,
            every=1,
            background=background,
            bounds=(30.0, 3600.0),
            clock=lambda: 0.0,
            log_line=lambda _: None,
            sync=lambda: None,
            on_saved=lambda saved, _: saves.append(saved.step),
        )
        save = partial(saver.save, {"model": Part()}, facts={}, last=False)
        saves.clear()
        save(step=1), save(step=2), saver.wait_for_save(2)
        with disk.strike(number, disk.fail, disk.CALLS) as met:
            save(step=3)
            saver.wait_for_save(3)
        assert save(step=4, last=True) == ""
        assert saves in ([1, 2, 4], [1, 2, 3, 4])
        if len(met) < number:
            break
    assert (number > 30, saves) == (True, [1, 2, 3, 4])


@pytest.mark.parametrize("lasting", [False, True])
def test_no_error_of_the_filesystem_makes_a_run_begin_at_an_older_checkpoint(
    saved, kind, pathlib_of, lasting
):
    root, truth = saved
    load(root, kind)  # the imports of a load are not part of the measurement
    told = []
    for number in count(1):
        with pytest.MonkeyPatch.context() as patch:

            def fail(_call, _args, patch=patch):
                if lasting:
                    patch.setattr(os, "preadv", disk.fail)
                disk.fail()

            with disk.strike(number, fail, disk.CALLS) as met:
                try:
                    assert load(root, kind) == (2, truth[2])
                    told.append("loaded")
                except CheckpointFailed as error:
                    told.append(type(error))
        if len(met) < number:
            break
    assert len(told) > 10
    assert set(told) <= {"loaded", CheckpointFailed, CheckpointUnreadable}
    assert told[-1] == "loaded"


def test_no_error_of_any_one_call_deletes_a_checkpoint_that_is_to_be_kept(tmp_path, pathlib_of):
    for number in count(1):
        checkpoints = Checkpointer(tmp_path / str(number), Solo(), codec=JsonCodec())
        save = partial(checkpoints.save, {"model": Part()}, facts={})
        save(step=1), save(step=2)
        before = checkpoints.committed()
        with (
            disk.strike(number, disk.fail, disk.CALLS) as met,
            suppress(CheckpointFailed),
        ):
            save(step=3)
        after = checkpoints.committed()
        assert before[0] in after
        assert len(after) >= 2
        if len(met) < number:
            break
    assert number > 30


def save_and_lose_the_run(root, number, *, reads_fail):
    """Have another attempt take over and save, during a save.

    Returns the checkpoints at that moment and at the end. There are none at that moment if the save
    has fewer calls.
    """
    place = root / "owner" / "12.0.first.ab"
    place.mkdir(parents=True)
    old = Checkpointer(root, Solo(), codec=JsonCodec(), fence=Fence(place))
    found, there = {"model": Part()}, set()
    for step in (1, 2, 3):
        old.save(found, step=step, facts={})
    with pytest.MonkeyPatch.context() as patch:

        def taken_over(call, args):
            shutil.rmtree(place)
            Checkpointer(root, Solo(), codec=JsonCodec()).save(found, step=9, facts={})
            there.update(root.glob("step-*"))
            if reads_fail:
                patch.setattr(os, "preadv", disk.fail)
            return call(*args)

        with disk.strike(number, taken_over, disk.CALLS), suppress(CheckpointFailed, Superseded):
            old.save(found, step=4, facts={})
    return there, set(root.glob("step-*"))


@pytest.mark.parametrize("reads_fail", [False, True])
def test_an_attempt_superseded_at_any_call_of_a_save_deletes_no_checkpoint(tmp_path, reads_fail):
    for number in count(1):
        there, after = save_and_lose_the_run(tmp_path / str(number), number, reads_fail=reads_fail)
        assert there <= after
        if not there:
            break
    assert number > 30


def test_nothing_good_left_is_an_error(tmp_path, saved, kind):
    shutil.copytree(saved[0], tmp_path / "copy")
    for path in (tmp_path / "copy").rglob("*"):
        if path.is_file() and path.name not in ("COMMITTED", "manifest.json"):
            path.write_bytes(b"")
    with pytest.raises(CheckpointFailed, match="no checkpoint can be trusted"):
        load(tmp_path / "copy", kind)


def test_damage_where_no_rank_reads_is_found_too(tmp_path, saved, kind):
    """Damage a file of a rank that no longer exists.

    The damage is found after the parts have been loaded from step 2.
    """
    root, truth = saved
    shutil.copytree(root, tmp_path / "copy")
    folder = tmp_path / "copy" / "step-00000002.000002"
    with hashed_file.HashingWriter(folder / "rank-00007.pt") as writer:
        writer.write(b"of a rank that is gone")
    found = manifest.read(folder)
    manifest.commit(folder, [*found.files, writer.entry()], found.facts)
    assert load(tmp_path / "copy", kind) == (2, truth[2])
    (folder / "rank-00007.pt").write_bytes(b"of a rank that is GONE")
    assert load(tmp_path / "copy", kind) == (1, truth[1])


def test_a_load_reads_and_hashes_no_block_twice(tmp_path, kind, monkeypatch):
    for module in (hashed_file, manifest):
        monkeypatch.setattr(module, "BLOCK", 6000)
    found = {"model": torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(4)))}
    Checkpointer(tmp_path, Solo(), codec=codec(kind)).save(found, step=1, facts={})
    (folder,) = tmp_path.iterdir()
    blocks = sum(len(entry.blocks) for entry in manifest.read(folder).files)
    reads, preadv = Counter(), os.preadv

    def counted(descriptor, buffers, offset):
        reads[Path(f"/proc/self/fd/{descriptor}").readlink().name, offset] += 1
        return preadv(descriptor, buffers, offset)

    monkeypatch.setattr(os, "preadv", counted)
    Checkpointer(tmp_path, Solo(), codec=codec(kind)).load(found)
    twice = {name for (name, _), times in reads.items() if times > 1}
    assert (blocks > 8, len(reads)) == (True, blocks)
    assert twice <= {".metadata"}  # DCP itself opens this file twice


def test_an_optimizer_that_has_made_no_step_comes_back_as_one(tmp_path, kind):
    found = parts()
    Checkpointer(tmp_path, Solo(), codec=codec(kind)).save(found, step=0, facts={})
    train(found)
    other = parts()
    train(other)
    Checkpointer(tmp_path, Solo(), codec=codec(kind)).load(other)
    assert other["optimizer"].state_dict()["state"] == {}
    train(other)
    assert all(
        torch.equal(a, b)
        for a, b in zip(found["model"].parameters(), other["model"].parameters(), strict=True)
    )


def test_a_copy_in_memory_is_used_again_and_is_always_the_newest_state(tmp_path, kind):
    found = parts()
    train(found)
    checkpoints = Checkpointer(tmp_path, Solo(), codec=codec(kind), background=True)
    for step in (1, 2, 3):
        truth = numbers(found)
        checkpoints.start_save(found, step=step, facts={})
        train(found)
        checkpoints.wait_for_save()
        assert load(tmp_path, kind) == (step, truth)


def test_state_of_many_blocks_comes_back(tmp_path, small_blocks, kind):
    found = parts()
    train(found)
    truth = numbers(found)
    Checkpointer(tmp_path, Solo(), codec=codec(kind)).save(found, step=1, facts={})
    assert load(tmp_path, kind) == (1, truth)


def test_files_of_many_blocks_are_hashed_alike_however_they_are_written(tmp_path, monkeypatch):
    monkeypatch.setattr(hashed_file, "BLOCK", 1000)
    monkeypatch.setattr(hashed_file, "_LARGE_PIECE", 300)
    content = os.urandom(12_345)
    entries = []
    for name, size in (("a", 1), ("b", 250), ("c", 999), ("d", 1000), ("e", 5000), ("f", 12_345)):
        with hashed_file.HashingWriter(tmp_path / name) as writer:
            for start in range(0, len(content), size):
                writer.write(content[start : start + size])
        entries.append(writer.entry())
        assert hashed_file.read_file(tmp_path, entries[-1]) == content
        assert b"".join(map(bytes, hashed_file.iter_blocks(tmp_path, entries[-1]))) == content
    assert len({entry.digest for entry in entries}) == 1
    assert len(entries[0].blocks) == 13


def test_large_reads_go_where_they_are_wanted_and_are_checked_all_the_same(tmp_path, monkeypatch):
    for name in ("BLOCK", "_LARGE_PIECE"):
        monkeypatch.setattr(hashed_file, name, 1000)
    content = os.urandom(12_345)
    with hashed_file.HashingWriter(tmp_path / "a") as writer:
        writer.write(content)
    entry, good = writer.entry(), []
    for start in (0, 10, 1000, 2999, 11_000, 12_000):
        for size in (1, 999, 1000, 1001, 2000, 5500, 20_000):
            with hashed_file.VerifiedReader(tmp_path, entry, good.append) as stream:
                stream.seek(start)
                assert stream.read(3) == content[start : start + 3]
                assert stream.read(size) == content[start + 3 : start + 3 + size]
    assert set(good) == set(range(13))
    damaged = bytearray(content)
    damaged[5500] ^= 1
    (tmp_path / "a").write_bytes(damaged)
    with hashed_file.VerifiedReader(tmp_path, entry) as stream:
        assert stream.read(5000) == content[:5000]
        with pytest.raises(Corrupt):
            stream.read(5000)
