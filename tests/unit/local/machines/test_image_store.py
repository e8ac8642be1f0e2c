"""Images in the store.

An image is complete or absent. Its layers are stacked newest first. It is kept while another image
or a machine uses it.
"""

import json

import pytest

from toolkit.local.machines.errors import ImageMissing, MachineError
from toolkit.local.machines.image_store import Image, ImageStore

BASE, COMPUTE, HEAD = "ami-00000000000000001", "ami-00000000000000002", "ami-00000000000000003"


@pytest.fixture
def root(tmp_path):
    path = tmp_path / "images"
    path.mkdir()
    return path


@pytest.fixture
def store(root):
    return ImageStore(root)


@pytest.fixture
def tree(tmp_path):
    def make(name="tree", **files):
        path = tmp_path / name
        path.mkdir()
        for file, text in files.items():
            (path / file).write_text(text)
        return path

    return make


def stack(store, tree):
    store.adopt(Image(BASE, "base", None, 1.0), tree("one", a="base"))
    store.adopt_disk(Image(COMPUTE, "compute", BASE, 2.0), tree("two", b="compute"))
    store.adopt_disk(Image(HEAD, "head", COMPUTE, 3.0), tree("three", c="head"))


def test_layers_are_ordered_from_newest_to_base(store, tree, root):
    stack(store, tree)
    assert store.layers(HEAD) == tuple(root / each / "layer" for each in (HEAD, COMPUTE, BASE))
    assert [image.id for image in store.list()] == [BASE, COMPUTE, HEAD]


def test_the_disk_of_a_machine_is_moved_into_the_image(store, tree, root):
    disk = tree(a="text")
    store.adopt(Image(BASE, "base", None, 1.0), tree("base"))
    store.adopt_disk(Image(COMPUTE, "compute", BASE, 2.0), disk)
    assert not disk.exists()
    assert (root / COMPUTE / "layer" / "a").read_text() == "text"


def test_an_annotated_image_is_read_by_a_new_store(store, tree, root):
    stack(store, tree)
    store.annotate(HEAD, name="head-1", attributes={"description": "x"})
    image = ImageStore(root).get(HEAD)
    assert (image.name, image.parent, image.attributes) == ("head-1", COMPUTE, {"description": "x"})


def test_an_unknown_image_is_named_in_the_error(store):
    with pytest.raises(ImageMissing, match=BASE):
        store.get(BASE)


def test_removing_an_image_keeps_a_layer_that_another_image_needs(store, tree, root):
    stack(store, tree)
    store.remove(COMPUTE)
    assert [image.id for image in store.list()] == [BASE, HEAD]
    assert (root / COMPUTE / "layer" / "b").exists()
    store.remove(HEAD)
    assert [path.name for path in root.iterdir()] == [BASE]


def test_removing_an_image_keeps_a_layer_that_a_machine_uses(store, tree, root):
    stack(store, tree)
    store.remove(HEAD, in_use={HEAD})
    assert (root / HEAD / "layer").exists()
    assert HEAD not in [image.id for image in store.list()]
    store.collect(in_use=())
    assert not (root / HEAD).exists()


def test_removing_an_absent_image_is_no_error(store):
    store.remove(BASE)
    store.remove(BASE)


def test_a_second_adopt_keeps_the_first_image(store, tree, root):
    store.adopt(Image(BASE, "first", None, 1.0), tree("one", a="first"))
    store.adopt(Image(BASE, "second", None, 2.0), tree("two", a="second"))
    assert store.get(BASE).name == "first"
    assert (root / BASE / "layer" / "a").read_text() == "first"


def test_an_interrupted_build_is_no_image_and_is_deleted(store, tree, root):
    (root / f".partial-{BASE}").mkdir()
    assert store.list() == ()
    store.sweep()
    assert list(root.iterdir()) == []


def test_a_circle_of_parent_images_is_an_error(store, tree, root):
    stack(store, tree)
    meta = json.loads((root / BASE / "meta.json").read_text())
    (root / BASE / "meta.json").write_text(json.dumps(meta | {"parent": HEAD}))
    with pytest.raises(MachineError, match="stands on itself"):
        store.layers(HEAD)


def test_an_image_has_no_machine_id_and_an_empty_tmp(store, tree, root):
    disk = tree()
    (disk / "etc").mkdir()
    (disk / "etc/machine-id").write_text("abc\n")
    (disk / "tmp/kept").mkdir(parents=True)
    store.adopt_disk(Image(BASE, "x", None, 1.0), disk)
    assert (root / BASE / "layer/etc/machine-id").read_text() == ""
    assert list((root / BASE / "layer/tmp").iterdir()) == []


def test_a_symbolic_link_in_a_machines_disk_does_not_change_the_host(store, tree, tmp_path):
    outside = tmp_path / "host-etc"
    outside.mkdir()
    (outside / "machine-id").write_text("the host's\n")
    (outside / "precious").write_text("x")
    disk = tree()
    (disk / "etc").symlink_to(outside)
    (disk / "tmp").symlink_to(outside)
    store.adopt_disk(Image(BASE, "x", None, 1.0), disk)
    assert (outside / "machine-id").read_text() == "the host's\n"
    assert (outside / "precious").exists()
