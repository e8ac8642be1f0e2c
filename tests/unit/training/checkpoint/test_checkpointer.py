"""Laws of a Checkpointer's saves and loads, without processes and torch."""

import shutil
import threading

import pytest

from toolkit.training.attempt.attempt import fence_of
from toolkit.training.attempt.fencing import Fence
from toolkit.training.checkpoint import manifest
from toolkit.training.checkpoint.checkpointer import Checkpointer, SavedCheckpoint
from toolkit.training.checkpoint.tier import FolderTier
from toolkit.training.distributed.process_group import Solo
from toolkit.training.errors import CheckpointFailed, Superseded
from toolkit.training.run_folder import checkpoint_names


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Timed:
    """A codec that stages for one second and writes for ten.

    `copies` lists for each stage if the codec had to copy.
    """

    def __init__(self, codec, clock) -> None:
        self._codec, self._clock, self.copies = codec, clock, []

    def stage(self, parts, world, *, copy):
        self._clock.now += 1
        self.copies.append(copy)
        return self._codec.stage(parts, world, copy=copy)

    def write(self, folder, staged, world):
        self._clock.now += 10
        return self._codec.write(folder, staged, world)

    def read(self, folder, found, parts, world):
        return self._codec.read(folder, found, parts, world)


class Slow(FolderTier):
    """A tier on which a commit takes the given seconds."""

    def __init__(self, root, clock, seconds, *, outlives_notice=True) -> None:
        super().__init__(root, outlives_notice=outlives_notice)
        self._clock, self._seconds = clock, seconds

    def commit(self, folder):
        self._clock.now += self._seconds
        super().commit(folder)


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def codec(json_codec, clock):
    return Timed(json_codec, clock)


@pytest.fixture
def root(tmp_path):
    return tmp_path / "near"


def size(folder):
    """Return the bytes of the files that the codec wrote."""
    records = {manifest.MANIFEST, checkpoint_names.COMMITTED}
    return sum(path.stat().st_size for path in folder.iterdir() if path.name not in records)


def damage(folder, name="shared.json"):
    path = folder / name
    path.write_bytes(path.read_bytes()[:-1] + b"!")


# Duration and size of a save


def test_a_save_says_what_it_took_and_what_of_that_a_stop_waits_for(
    tmp_path, root, codec, clock, part
):
    tiers = (
        Slow(tmp_path / "far", clock, 100),
        Slow(tmp_path / "s3", clock, 1000, outlives_notice=False),
    )
    checkpoints = Checkpointer(root, Solo(), codec=codec, tiers=tiers, clock=clock)
    saved = checkpoints.save({"model": part({"step": 7})}, step=7, facts={})
    assert saved == SavedCheckpoint(
        name="step-00000007.000001",
        step=7,
        stall_seconds=1111.0,
        seconds=11.0,
        stop_seconds=111.0,
        whole_seconds=1111.0,
        bytes=size(root / saved.name),
        problems=(),
    )
    assert codec.copies == [False]


def test_a_save_in_the_background_stalls_the_training_while_it_copies_and_no_longer(
    root, codec, clock, part
):
    checkpoints = Checkpointer(root, Solo(), codec=codec, background=True, clock=clock)
    checkpoints.start_save({"model": part({"step": 7})}, step=7, facts={"position": 3})
    saved = checkpoints.wait_for_save()
    assert (saved.stall_seconds, saved.seconds, saved.whole_seconds) == (1.0, 11.0, 11.0)
    assert codec.copies == [True]
    facts = manifest.read(root / saved.name).facts
    assert facts == {"position": 3, "step": 7, "world_size": 1}


def test_a_checkpointer_that_is_not_made_for_it_saves_nothing_in_the_background(
    root, json_codec, part
):
    checkpoints = Checkpointer(root, Solo(), codec=json_codec)
    with pytest.raises(RuntimeError, match=r"^start_save needs Checkpointer\(background=True\)$"):
        checkpoints.start_save({"model": part()}, step=1, facts={})
    assert not root.exists()


def test_a_save_is_under_way_until_its_end_and_is_settled_once(root, json_codec, part):
    gate, write = threading.Event(), json_codec.write

    def held(*args):
        assert gate.wait(20)
        return write(*args)

    json_codec.write = held
    checkpoints = Checkpointer(root, Solo(), codec=json_codec, background=True)
    assert not checkpoints.is_saving()
    checkpoints.start_save({"model": part()}, step=1, facts={})
    assert checkpoints.is_saving()
    with pytest.raises(RuntimeError, match=r"^a save is running: call wait_for_save\(\) first$"):
        checkpoints.save({"model": part()}, step=2, facts={})
    gate.set()
    for thread in threading.enumerate():
        if thread.name == "checkpoint":
            thread.join(20)
    assert not checkpoints.is_saving()
    assert checkpoints.wait_for_save().step == 1
    assert checkpoints.wait_for_save() is None


def test_a_save_that_no_stop_waits_for_is_copied_to_every_tier(tmp_path, root, json_codec, part):
    gate, write = threading.Event(), json_codec.write

    def held(*args):
        assert gate.wait(20)
        return write(*args)

    json_codec.write = held
    tier = FolderTier(tmp_path / "s3", outlives_notice=False)
    checkpoints = Checkpointer(root, Solo(), codec=json_codec, tiers=(tier,), background=True)
    checkpoints.start_save({"model": part()}, step=1, facts={})
    threading.Timer(0.1, gate.set).start()
    saved = checkpoints.wait_for_save()
    assert (saved.problems, tier.names()) == ((), [saved.name])


# Reading back and deletion


@pytest.mark.parametrize("urgent", [False, True])
def test_what_is_saved_is_read_back_unless_the_instance_goes(
    root, json_codec, part, monkeypatch, urgent
):
    read = []
    monkeypatch.setattr(manifest, "verify", lambda folder, **how: read.append((folder, how)))
    checkpoints = Checkpointer(root, Solo(), codec=json_codec)
    for step in range(1, 4):
        name = checkpoints.save({"model": part()}, step=step, facts={}, urgent=urgent).name
    if urgent:
        assert read == []
        assert len(checkpoints.committed()) == 3, "nothing is pruned either"
    else:
        folder, how = read[-1]
        assert (folder, how["rank"], how["world_size"], how["stop"]()) == (root / name, 0, 1, False)
        assert len(checkpoints.committed()) == 2


def test_a_stop_that_comes_while_a_save_is_read_back_ends_the_reading(
    root, json_codec, part, monkeypatch
):
    reading, told = threading.Event(), []

    def verify(_, *, rank, world_size, stop):
        reading.set()
        for _ in range(2000):
            if stop():
                break
            threading.Event().wait(0.01)
        told.append((rank, world_size, stop()))

    monkeypatch.setattr(manifest, "verify", verify)
    checkpoints = Checkpointer(root, Solo(), codec=json_codec, background=True)
    checkpoints.start_save({"model": part()}, step=1, facts={})
    assert reading.wait(20)
    assert checkpoints.wait_for_save(urgent=True).step == 1
    assert told == [(0, 1, True)]


def test_the_ranks_share_the_reading_back_and_the_looking_at_sizes(
    root, json_codec, part, ranks, monkeypatch
):
    verified, looked, rest = [], [], []
    monkeypatch.setattr(
        manifest,
        "verify",
        lambda _, rank, world_size, stop: verified.append((rank, world_size, stop())),
    )
    monkeypatch.setattr(
        manifest, "check_sizes", lambda *_, rank, world_size: looked.append((rank, world_size))
    )
    monkeypatch.setattr(
        manifest,
        "verify_rest",
        lambda *args, rank, world_size: rest.append((rank, world_size, sorted(args[2]))),
    )

    def one(world):
        checkpoints = Checkpointer(root, world, codec=json_codec)
        checkpoints.save({"model": part({"step": 1})}, step=1, facts={})
        return checkpoints.load({"model": part()}).name

    assert ranks(2, one) == ["step-00000001.000001"] * 2
    assert sorted(verified) == [(0, 2, False), (1, 2, False)]
    assert sorted(looked) == [(0, 2), (1, 2)]
    good: list[tuple[str, int]] = []  # JsonCodec reads files itself, so no file is checked already
    assert sorted(rest) == [(0, 2, good), (1, 2, good)]


@pytest.fixture
def removals(monkeypatch):
    """The threads that delete a folder."""
    found, remove = [], manifest.remove

    def noted(folder, **how):
        found.append(threading.current_thread())
        remove(folder, **how)

    monkeypatch.setattr(manifest, "remove", noted)
    return found


@pytest.mark.parametrize("size", [1, 2])
def test_a_save_that_fails_leaves_no_folder_and_rank_0_alone_deletes_it(
    root, json_codec, ranks, removals, size
):
    def full(*_):
        raise OSError(28, "No space left on device")

    json_codec.write = full
    threads = {}

    def one(world):
        threads[world.rank] = threading.current_thread()
        Checkpointer(root, world, codec=json_codec).save({}, step=1, facts={})

    assert [type(result) for result in ranks(size, one)] == [CheckpointFailed] * size
    assert list(root.iterdir()) == []
    assert removals == [threads[0]]


# Loading


def test_of_checkpoints_none_of_which_is_good_each_is_named(root, json_codec, part):
    checkpoints = Checkpointer(root, Solo(), codec=json_codec)
    names = [checkpoints.save({"model": part()}, step=step, facts={}).name for step in (1, 2)]
    for name in names:
        damage(root / name)
    said = rf"^no checkpoint can be trusted: {names[1]}/shared.json: .*; {names[0]}/shared.json: "
    with pytest.raises(CheckpointFailed, match=said):
        checkpoints.load({"model": part()})


def test_of_a_checkpoint_that_is_bad_in_every_place_each_place_is_told(
    tmp_path, root, json_codec, part
):
    tier = FolderTier(tmp_path / "far")
    checkpoints = Checkpointer(root, Solo(), codec=json_codec, tiers=(tier,))
    first = checkpoints.save({"model": part({"step": 1})}, step=1, facts={})
    newest = checkpoints.save({"model": part({"step": 2})}, step=2, facts={})
    for place in (root, tmp_path / "far"):
        damage(place / newest.name)
    found = checkpoints.load({"model": part()})
    assert found.name == first.name
    (told,) = found.rejected
    said = f"{newest.name}/shared.json: content differs from what was written"
    assert told == f"{said}; {said}"


def test_a_tier_without_a_copy_hides_no_tier_that_has_one(tmp_path, root, json_codec, part):
    far = FolderTier(tmp_path / "far")
    Checkpointer(root, Solo(), codec=json_codec, tiers=(far,)).save(
        {"model": part({"step": 1})}, step=1, facts={}
    )
    shutil.rmtree(root)
    model = part()
    tiers = (FolderTier(tmp_path / "new"), far)
    found = Checkpointer(root, Solo(), codec=json_codec, tiers=tiers).load({"model": model})
    assert (found.facts["step"], model.value["step"], found.rejected) == (1, 1, ())


def test_the_step_of_the_newest_checkpoint_is_told_and_none_where_there_is_none(
    root, json_codec, part
):
    checkpoints = Checkpointer(root, Solo(), codec=json_codec)
    assert (checkpoints.last_step(), checkpoints.committed()) == (None, [])
    for step in (9, 4):
        checkpoints.save({"model": part()}, step=step, facts={})
    assert checkpoints.last_step() == 4


# The fence


def test_a_run_that_was_taken_over_is_told_on_every_rank(tmp_path, root, json_codec, ranks):
    place = tmp_path / "owner"
    place.mkdir()

    def one(world):
        Checkpointer(root, world, codec=json_codec, fence=Fence(place)).check_fence()
        world.gather(None)
        if world.rank == 0:
            place.rmdir()
        world.gather(None)
        Checkpointer(root, world, codec=json_codec, fence=Fence(place)).check_fence()

    assert [type(result) for result in ranks(2, one)] == [Superseded] * 2


class Noting(Fence):
    """A fence that keeps the names of the files written through it."""

    made: list[str] = []  # noqa: RUF012  # a slot would be a field

    def write_fenced(self, path, content):
        self.made.append(path.name)
        super().write_fenced(path, content)


def test_the_commit_is_a_step_that_only_the_owner_can_make(root, json_codec, part):
    Noting.made.clear()
    checkpoints = Checkpointer(root, Solo(), codec=json_codec, fence=Noting())
    checkpoints.save({"model": part()}, step=1, facts={})
    assert Noting.made == ["COMMITTED"]


def test_without_an_owner_given_it_is_the_attempt_that_the_folder_belongs_to(
    tmp_path, root, json_codec, part, monkeypatch
):
    place = tmp_path / "owner"
    place.mkdir()
    asked = []
    monkeypatch.setattr(
        "toolkit.training.checkpoint.checkpointer.fence_of",
        lambda path: asked.append(path) or Fence(place),
    )
    checkpoints = Checkpointer(root, Solo(), codec=json_codec)
    assert asked == [root]
    place.rmdir()
    with pytest.raises(Superseded):
        checkpoints.save({"model": part()}, step=1, facts={})
    assert fence_of(root).folder is None


def test_as_many_checkpoints_are_kept_as_was_asked_for(root, json_codec, part):
    checkpoints = Checkpointer(root, Solo(), keep=3, codec=json_codec)
    for step in range(1, 6):
        checkpoints.save({"model": part()}, step=step, facts={})
    assert [folder.name[-1] for folder in checkpoints.committed()] == ["5", "4", "3"]
    with pytest.raises(ValueError, match=r"^keep at least 2 checkpoints, not 1$"):
        Checkpointer(root, Solo(), keep=1)
