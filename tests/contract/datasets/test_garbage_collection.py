"""Garbage collection deletes only content that no kept version descends from."""

import itertools
import os

import pytest

from tests.fakes.datasets import described, write_tree
from tests.fakes.disk import WHEN, Killed, MortalDisk, QuickDisk
from toolkit.datasets.errors import DataError, StoreBusy
from toolkit.datasets.store import gc_markers
from toolkit.datasets.store.add import add
from toolkit.datasets.store.catalog import Catalog, Derivation, manifest_key
from toolkit.datasets.store.folder_store import FolderStore
from toolkit.datasets.store.garbage_collection import collect_garbage, find_garbage
from toolkit.datasets.store.verify import find_damaged_content

DAY = 86_400


@pytest.fixture
def add_dataset(catalog, tmp_path):
    """A function that adds a dataset of two files, one shared."""

    def add_small(word, name=None, into=None):
        folder = write_tree(tmp_path / "src" / word, {"own": word.encode(), "shared": b"s"})
        return add(into or catalog, folder, name=name).version

    return add_small


def derive(catalog, clock, output, *inputs):
    catalog.put_derivation(
        Derivation(output[-64:], output, inputs, "c" * 64, {}, "silver", clock())
    )


def versions(catalog):
    return {
        "sha256:" + item.key.removeprefix("manifests/").removesuffix(".json")
        for item in catalog.store.list("manifests/")
    }


def test_garbage_collection_deletes_unnamed_versions_with_their_content(
    catalog, clock, add_dataset
):
    kept_version, unnamed_version = add_dataset("kept", "kept"), add_dataset("lost")
    clock.now += 2 * DAY
    garbage = collect_garbage(catalog)
    assert garbage.versions == (unnamed_version,)
    assert garbage.size == len("lost")
    assert versions(catalog) == {kept_version}
    assert find_damaged_content(catalog, kept_version) == []
    assert len(list(catalog.store.list("objects/"))) == 2


def test_find_garbage_deletes_nothing_and_names_what_collect_garbage_deletes(
    catalog, clock, add_dataset
):
    add_dataset("lost")
    clock.now += 2 * DAY
    before = list(catalog.store.list(""))
    planned = find_garbage(catalog)
    assert list(catalog.store.list("")) == before
    assert collect_garbage(catalog) == planned


def test_a_version_younger_than_a_day_is_kept(catalog, clock, add_dataset):
    unnamed_version = add_dataset("lost")
    clock.now += DAY / 2
    assert collect_garbage(catalog).versions == ()
    assert versions(catalog) == {unnamed_version}


def test_inputs_of_a_named_dataset_are_kept(catalog, clock, add_dataset):
    bronze, silver, gold = add_dataset("bronze"), add_dataset("silver"), add_dataset("gold", "gold")
    other, aside = add_dataset("other"), add_dataset("aside")
    derive(catalog, clock, silver, bronze)
    derive(catalog, clock, gold, silver)
    derive(catalog, clock, aside, other)
    clock.now += 2 * DAY
    assert set(collect_garbage(catalog).versions) == {other, aside}
    assert versions(catalog) == {bronze, silver, gold}
    assert {one.output for one in catalog.derivations()} == {silver, gold}


def test_inputs_of_a_young_dataset_are_kept(catalog, clock, add_dataset):
    old, young = add_dataset("old"), add_dataset("young")
    derive(catalog, clock, young, old)
    clock.now += 2 * DAY
    for item in catalog.store.list("manifests/"):
        if young[7:] in item.key:
            os.utime(catalog.store.root / item.key, (clock.now, clock.now))
    assert collect_garbage(catalog).versions == ()


def test_a_forgotten_name_keeps_no_version(catalog, clock, add_dataset):
    unnamed_version = add_dataset("lost", "lost")
    catalog.forget("lost")
    clock.now += 2 * DAY
    assert collect_garbage(catalog).versions == (unnamed_version,)


def test_garbage_collection_is_refused_while_a_dataset_is_added(catalog, clock, add_dataset):
    unnamed_version = add_dataset("lost")
    clock.now += 2 * DAY
    with gc_markers.adding(catalog):
        for item in catalog.store.list("adding/"):
            os.utime(catalog.store.root / item.key, (clock.now, clock.now))
        with pytest.raises(StoreBusy):
            collect_garbage(catalog)
    assert versions(catalog) == {unnamed_version}
    assert collect_garbage(catalog).versions == (unnamed_version,)


def test_the_marker_of_a_killed_add_expires(catalog, clock, add_dataset):
    add_dataset("lost")
    catalog.store.write("adding/dead.json", b"{}")
    with pytest.raises(StoreBusy):
        collect_garbage(catalog)
    clock.now += 2 * DAY
    collect_garbage(catalog)
    assert not list(catalog.store.list("adding/"))


def test_garbage_collection_deletes_nothing_if_a_manifest_can_not_be_read(
    catalog, clock, add_dataset
):
    """Damage a manifest, so that its files are unknown.

    No content is provably garbage then.
    """
    kept_version = add_dataset("kept", "kept")
    add_dataset("lost")
    catalog.store.write(f"manifests/{kept_version[7:]}.json", b"{}")
    clock.now += 2 * DAY
    before = {item.key for item in catalog.store.list("objects/")}
    with pytest.raises(DataError, match="nothing was deleted"):
        collect_garbage(catalog)
    assert {item.key for item in catalog.store.list("objects/")} == before


@pytest.mark.parametrize("when", WHEN)
def test_garbage_collection_killed_at_any_file_operation_keeps_named_versions_whole(
    tmp_path, clock, add_dataset, when
):
    for fatal in itertools.count():
        store_root = tmp_path / f"store-{fatal}"
        catalog = Catalog(FolderStore(store_root, disk=QuickDisk()), clock=clock)
        start_time = clock.now
        kept_version = add_dataset("kept", "kept", catalog)
        unnamed_version = add_dataset("lost", None, catalog)
        clock.now += 2 * DAY
        failing_catalog = Catalog(
            FolderStore(store_root, disk=MortalDisk(fatal, when)), clock=clock
        )
        try:
            collect_garbage(failing_catalog)
            break
        except Killed:
            pass
        clock.now += 2 * DAY
        collect_garbage(catalog)
        assert versions(catalog) == {kept_version}
        assert find_damaged_content(catalog, kept_version) == []
        assert add_dataset("lost", "lost", catalog) == unnamed_version
        assert find_damaged_content(catalog, unnamed_version) == []
        clock.now = start_time
    assert fatal >= 5


def test_a_collected_dataset_can_be_added_again(catalog, clock, add_dataset):
    unnamed_version = add_dataset("lost")
    clock.now += 2 * DAY
    collect_garbage(catalog)
    assert (
        add_dataset("lost")
        == unnamed_version
        == described({"own": b"lost", "shared": b"s"}).version
    )
    assert find_damaged_content(catalog, unnamed_version) == []


def test_a_version_that_was_added_again_to_a_store_in_s3_is_young(catalog, clock, add_dataset):
    """A mark under wanted/ makes its manifest young."""
    version = add_dataset("wanted")
    clock.now += 2 * DAY
    mark = f"wanted/{manifest_key(version)}"
    catalog.store.write(mark, b"")
    os.utime(catalog.store.root / mark, (clock.now, clock.now))
    assert collect_garbage(catalog).versions == ()
    clock.now += 2 * DAY
    assert collect_garbage(catalog).versions == (version,)
    assert list(catalog.store.list("wanted/")) == []
