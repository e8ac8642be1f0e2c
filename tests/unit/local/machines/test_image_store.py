"""Images are whole or absent, stacked newest first, and kept while anything stands on them."""

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


def test_layers_are_newest_first_and_end_with_the_base(store, tree, root):
    stack(store, tree)
    assert store.layers(HEAD) == tuple(root / each / "layer" for each in (HEAD, COMPUTE, BASE))
    assert [image.id for image in store.list()] == [BASE, COMPUTE, HEAD]


def test_what_a_machine_had_is_the_images(store, tree, root):
    disk = tree(a="text")
    store.adopt(Image(BASE, "base", None, 1.0), tree("base"))
    store.adopt_disk(Image(COMPUTE, "compute", BASE, 2.0), disk)
    assert not disk.exists()
    assert (root / COMPUTE / "layer" / "a").read_text() == "text"


def test_an_image_survives_its_store(store, tree, root):
    stack(store, tree)
    store.annotate(HEAD, name="head-1", attributes={"description": "x"})
    found = ImageStore(root).get(HEAD)
    assert (found.name, found.parent, found.attributes) == ("head-1", COMPUTE, {"description": "x"})


def test_an_unknown_image_is_missing_by_name(store):
    with pytest.raises(ImageMissing, match=BASE):
        store.get(BASE)


def test_removing_an_image_keeps_what_another_stands_on(store, tree, root):
    stack(store, tree)
    store.remove(COMPUTE)
    assert [image.id for image in store.list()] == [BASE, HEAD]
    assert (root / COMPUTE / "layer" / "b").exists()
    store.remove(HEAD)
    assert [path.name for path in root.iterdir()] == [BASE]


def test_removing_an_image_keeps_what_a_machine_stands_on(store, tree, root):
    stack(store, tree)
    store.remove(HEAD, in_use={HEAD})
    assert (root / HEAD / "layer").exists()
    assert HEAD not in [image.id for image in store.list()]
    store.collect(in_use=())
    assert not (root / HEAD).exists()


def test_removing_twice_or_what_never_was_is_no_error(store):
    store.remove(BASE)
    store.remove(BASE)


def test_a_second_adoption_keeps_the_first(store, tree, root):
    store.adopt(Image(BASE, "first", None, 1.0), tree("one", a="first"))
    store.adopt(Image(BASE, "second", None, 2.0), tree("two", a="second"))
    assert store.get(BASE).name == "first"
    assert (root / BASE / "layer" / "a").read_text() == "first"


def test_what_an_interrupted_build_left_is_no_image_and_is_swept(store, tree, root):
    (root / f".partial-{BASE}").mkdir()
    assert store.list() == ()
    store.sweep()
    assert list(root.iterdir()) == []


def test_a_chain_that_bites_its_tail_is_an_error_not_a_hang(store, tree, root):
    stack(store, tree)
    meta = json.loads((root / BASE / "meta.json").read_text())
    (root / BASE / "meta.json").write_text(json.dumps(meta | {"parent": HEAD}))
    with pytest.raises(MachineError, match="stands on itself"):
        store.layers(HEAD)


def test_machines_of_one_image_do_not_share_an_identity(store, tree, root):
    disk = tree()
    (disk / "etc").mkdir()
    (disk / "etc/machine-id").write_text("abc\n")
    (disk / "tmp/kept").mkdir(parents=True)
    store.adopt_disk(Image(BASE, "x", None, 1.0), disk)
    assert (root / BASE / "layer/etc/machine-id").read_text() == ""
    assert list((root / BASE / "layer/tmp").iterdir()) == []


def test_a_link_in_a_machines_disk_never_leads_out_to_the_host(store, tree, tmp_path):
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
