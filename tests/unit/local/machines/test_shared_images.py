"""Local clouds share images as links.

No cloud can delete the image of another.
"""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from toolkit.local.machines.errors import ImageMissing
from toolkit.local.machines.image_store import Image, ImageStore
from toolkit.local.machines.shared_images import Library

BASE, HEAD = "ami-00000000000000001", "ami-00000000000000002"
OWN = "ami-00000000000000003"


@pytest.fixture
def library(tmp_path):
    return Library(tmp_path / "shared")


@pytest.fixture
def store(tmp_path, library):
    def make(name):
        root = tmp_path / name
        root.mkdir(exist_ok=True)
        return ImageStore(root, library)

    return make


@pytest.fixture
def sharing_store(tmp_path, store):
    """A store that has built two images and shared them."""
    store_of_one = store("one")
    for image, text in (
        (Image(BASE, "base", None, 1.0), "a"),
        (Image(HEAD, "head", BASE, 2.0), "b"),
    ):
        tree = tmp_path / image.name
        tree.mkdir()
        (tree / "file").write_text(text)
        (tree / "link").symlink_to("file")
        store_of_one.adopt(image, tree)
    store_of_one.share(HEAD)
    return store_of_one


def test_another_cloud_lists_and_stacks_a_shared_image(sharing_store, store):
    other = store("two")
    assert [image.name for image in other.list()] == ["base", "head"]
    layers = other.layers(HEAD)
    assert [(layer / "file").read_text() for layer in layers] == ["b", "a"]
    assert (layers[0] / "link").readlink().name == "file"
    assert (layers[0] / "file").samefile(sharing_store.layers(HEAD)[0] / "file")


def test_removing_an_image_keeps_it_in_other_clouds(sharing_store, store):
    running, late = store("two"), store("three")
    running.layers(HEAD)
    sharing_store.remove(HEAD)
    assert HEAD not in {image.id for image in sharing_store.list()}
    for other in (running, late):
        assert (other.layers(HEAD)[0] / "file").read_text() == "b"


def test_a_removed_image_is_not_taken_from_the_library_again(sharing_store, store):
    sharing_store.remove(HEAD)
    again = store("one")
    assert [image.id for image in again.list()] == [BASE]
    with pytest.raises(ImageMissing):
        again.get(HEAD)


def test_removing_an_image_keeps_it_in_the_library(tmp_path, sharing_store, store):
    """Remove an image although the base of a shared image is missing."""
    other = store("two")
    other.remove(BASE)
    tree = tmp_path / "tree"
    tree.mkdir()
    other.adopt(Image(OWN, "own", None, 3.0), tree)
    other.remove(OWN)
    assert not list((tmp_path / "two").glob("ami-*/"))


def test_the_annotation_of_an_image_stays_in_its_own_cloud(sharing_store, store):
    other = store("two")
    other.get(HEAD)
    other.annotate(HEAD, name="mine", attributes={})
    assert sharing_store.get(HEAD).name == "head"
    assert store("three").get(HEAD).name == "head"


def test_a_cloud_on_another_filesystem_does_not_share_images(
    tmp_path, sharing_store, store, monkeypatch, caplog
):
    def link(*_argv):
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", link)
    other = store("two")
    assert other.list() == ()
    with pytest.raises(ImageMissing):
        other.get(HEAD)
    tree = tmp_path / "tree"
    tree.mkdir()
    other.adopt(Image(OWN, "own", None, 3.0), tree)
    other.share(OWN)
    assert OWN not in {image.id for image in sharing_store.list()}
    assert [record.message for record in caplog.records] == [
        f"{tmp_path / 'two'} is not shared: no link from {tmp_path / 'shared'}"
    ]


def test_a_partial_image_of_a_killed_process_is_deleted(sharing_store, library, store):
    (library.root / f".partial-{HEAD}-1").mkdir()
    assert HEAD in store("two")._library_ids()
    sharing_store.share(BASE)
    assert not list(library.root.glob(".partial-*"))


@pytest.mark.parametrize("stores", [1, 2], ids=["one-store", "two-stores-of-one-directory"])
def test_two_threads_that_lend_one_image_both_get_it_whole(
    sharing_store, store, library, monkeypatch, stores
):
    """Copy half of each image before the rest of either."""
    first_halves = threading.Barrier(2)
    run = subprocess.run

    def halfway(argv, **options):
        with contextlib.suppress(threading.BrokenBarrierError):
            first_halves.wait(0.5)  # under a lock the other thread never gets here
        done = run(argv, **options)
        with contextlib.suppress(threading.BrokenBarrierError):
            first_halves.wait(0.5)
        return done

    monkeypatch.setattr(subprocess, "run", halfway)
    lenders = [store("two") for _ in range(stores)] * (2 // stores)
    with ThreadPoolExecutor(2) as threads:
        layers = list(threads.map(lambda each: each.layers(HEAD), lenders))
    assert layers[0] == layers[1]
    assert [(layer / "file").read_text() for layer in layers[0]] == ["b", "a"]
    assert not list(layers[0][0].parent.parent.glob(".partial-*"))


def test_an_image_lock_is_exclusive_for_its_image(library):
    assert not library.is_locked(BASE)
    with library.locked(BASE):
        assert library.is_locked(BASE)
        assert not library.is_locked(HEAD)
    assert not library.is_locked(BASE)


def test_the_lock_of_a_killed_process_is_released(library):
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        with library.locked(BASE):
            os.write(write, b"x")
            os.kill(os.getpid(), 9)
    os.read(read, 1)
    os.waitpid(child, 0)
    os.close(read)
    os.close(write)
    assert not library.is_locked(BASE)
