"""The folders of a run's checkpoints: committed, kept and deleted ones."""

import shutil

import pytest

from toolkit.training.attempt.fencing import UNCLAIMED, Fence
from toolkit.training.checkpoint import manifest
from toolkit.training.checkpoint.folders import Folders
from toolkit.training.errors import Superseded
from toolkit.training.run_folder import checkpoint_names


def make(root, step, number, *, committed=True):
    folder = root / f"step-{step:08}.{number:06}"
    folder.mkdir(parents=True)
    if committed:
        (folder / checkpoint_names.COMMITTED).write_text("")
    return folder


def numbers(root):
    """Return the numbers of the folders that exist."""
    return sorted(int(path.name[-6:]) for path in root.iterdir())


@pytest.fixture
def owner(tmp_path):
    place = tmp_path / "owner"
    place.mkdir()
    return Fence(place)


@pytest.fixture
def root(tmp_path):
    return tmp_path / "checkpoints"


def test_the_folders_are_told_newest_save_first_and_nothing_else_is(root):
    older, newer = make(root, 9, 1), make(root, 5, 2)
    begun = make(root, 7, 3, committed=False)
    for name in ("step-x", "other", ".step-00000001.000009.tmp", "step-00000001.000009.tmp"):
        (root / name).mkdir()
    folders = Folders(root, 2, UNCLAIMED)
    assert folders.all_folders() == [begun, newer, older]
    assert folders.committed() == [newer, older]
    assert Folders(root / "absent", 2, UNCLAIMED).all_folders() == []


def test_two_folders_of_one_number_are_told_furthest_step_first(root):
    low, high = make(root, 1, 4), make(root, 2, 4)
    assert Folders(root, 2, UNCLAIMED).all_folders() == [high, low]


@pytest.mark.parametrize(
    ("last", "name"), [(0, "step-00000012.000004"), (8, "step-00000012.000009")]
)
def test_a_new_folder_has_a_number_that_no_place_has_given(root, last, name):
    make(root, 5, 3, committed=False)
    assert Folders(root, 2, UNCLAIMED).create(12, last) == name
    assert (root / name).is_dir()


def test_the_first_folder_of_a_run_is_number_one_and_makes_the_root(root):
    assert Folders(root / "deep", 2, UNCLAIMED).create(0, 0) == "step-00000000.000001"


def test_a_run_that_was_taken_over_gets_no_new_folder(root, owner):
    shutil.rmtree(owner.folder)
    with pytest.raises(Superseded):
        Folders(root, 2, owner).create(1, 0)
    assert not root.exists()


@pytest.mark.parametrize(
    ("keep", "distrusted", "doubted", "kept"),
    [
        (2, (), (), [5, 6]),
        (3, (), (), [4, 5, 6]),
        (2, (6,), (), [4, 5]),
        (2, (), (6,), [4, 5, 6]),
        (2, (), (4, 5, 6), [2, 3, 5, 6]),
        (2, (5,), (5, 6), [3, 4, 6]),
    ],
)
def test_the_newest_that_are_trusted_are_kept_and_as_many_that_are_doubted(
    root, keep, distrusted, doubted, kept
):
    folders = Folders(root, keep, UNCLAIMED)
    for number in range(1, 7):
        make(root, number, number)
    make(root, 7, 7, committed=False)
    for number in doubted:
        folders.mark_doubted(f"step-{number:08}.{number:06}")
    folders.distrusted_names |= {f"step-{number:08}.{number:06}" for number in distrusted}
    folders.prune()
    assert numbers(root) == kept


def test_what_is_doubted_goes_once_a_newer_one_is_good_and_a_new_doubt_is_another(root):
    folders = Folders(root, 2, UNCLAIMED)
    for number in range(1, 5):
        make(root, number, number)
    folders.mark_doubted("step-00000002.000002")
    folders.confirm_newest()
    assert folders.distrusted_names == {"step-00000002.000002"}
    folders.mark_doubted("step-00000004.000004")
    folders.prune()
    assert numbers(root) == [1, 3, 4]
    folders.distrusted_names.clear()
    folders.confirm_newest()
    assert folders.distrusted_names == {"step-00000004.000004"}


def test_a_folder_that_can_not_be_deleted_keeps_no_other_from_it(root, monkeypatch):
    for number in range(1, 6):
        make(root, number, number)
    remove = manifest.remove

    def fails(folder, **how):
        if folder.name.endswith("3"):
            raise PermissionError(13, "no", str(folder))
        remove(folder, **how)

    monkeypatch.setattr(manifest, "remove", fails)
    Folders(root, 2, UNCLAIMED).prune()
    assert numbers(root) == [3, 4, 5]


def test_a_root_that_can_not_be_read_costs_no_save(root, monkeypatch):
    def fails(_):
        raise PermissionError(13, "no")

    make(root, 1, 1)
    monkeypatch.setattr(checkpoint_names, "is_committed", fails)
    folders = Folders(root, 2, UNCLAIMED)
    folders.prune()
    folders.abandon(root / "step-00000001.000001")
    assert numbers(root) == [1]


def test_what_is_abandoned_is_deleted_unless_it_was_committed(root):
    good, begun = make(root, 1, 1), make(root, 2, 2, committed=False)
    folders = Folders(root, 2, UNCLAIMED)
    folders.abandon(good)
    folders.abandon(begun)
    assert numbers(root) == [1]


def test_who_is_not_the_owner_any_more_deletes_nothing(root, owner):
    begun = make(root, 1, 1, committed=False)
    for number in (2, 3, 4):
        make(root, number, number)
    shutil.rmtree(owner.folder)
    folders = Folders(root, 2, owner)
    folders.abandon(begun)
    with pytest.raises(Superseded):
        folders.prune()
    assert numbers(root) == [1, 2, 3, 4]


def test_what_is_deleted_is_taken_out_of_sight_first(root, owner, monkeypatch):
    """Move the folder into the fence before its files are deleted.

    A process that is killed on the way leaves a complete folder, in the old place or in the fence.
    """
    begun = make(root, 1, 1, committed=False)
    (begun / "file").write_text("content")
    seen = []
    monkeypatch.setattr(shutil, "rmtree", lambda path, **how: seen.append((path, how)))
    Folders(root, 2, owner).abandon(begun)
    assert numbers(root) == []
    assert seen == [(owner.folder / begun.name, {"ignore_errors": True})]
