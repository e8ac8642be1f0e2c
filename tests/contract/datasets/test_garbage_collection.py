"""Garbage collection takes what nothing kept descends from, and nothing else, ever."""

import itertools
import os

import pytest

from tests.fakes.datasets import described, write_tree
from tests.fakes.disk import WHEN, Killed, MortalDisk, QuickDisk
from toolkit.datasets.errors import DataError, StoreBusy
from toolkit.datasets.store import gc_markers
from toolkit.datasets.store.add import add
from toolkit.datasets.store.catalog import Catalog, Derivation
from toolkit.datasets.store.folder_store import FolderStore
from toolkit.datasets.store.garbage_collection import collect_garbage, find_garbage
from toolkit.datasets.store.verify import find_damaged_content

DAY = 86_400


@pytest.fixture
def put(catalog, tmp_path):
    """Add a small dataset of one shared and one own file."""

    def make(word, name=None, into=None):
        folder = write_tree(tmp_path / "src" / word, {"own": word.encode(), "shared": b"s"})
        return add(into or catalog, folder, name=name).version

    return make


def derive(catalog, clock, output, *inputs):
    catalog.put_derivation(
        Derivation(output[-64:], output, inputs, "c" * 64, {}, "silver", clock())
    )


def versions(catalog):
    return {
        "sha256:" + item.key.removeprefix("manifests/").removesuffix(".json")
        for item in catalog.store.list("manifests/")
    }


def test_garbage_collection_deletes_unnamed_versions_with_their_content(catalog, clock, put):
    kept, lost = put("kept", "kept"), put("lost")
    clock.now += 2 * DAY
    doomed = collect_garbage(catalog)
    assert doomed.versions == (lost,)
    assert doomed.size == len("lost")
    assert versions(catalog) == {kept}
    assert find_damaged_content(catalog, kept) == []
    assert len(list(catalog.store.list("objects/"))) == 2


def test_find_garbage_deletes_nothing_and_names_what_collect_garbage_deletes(catalog, clock, put):
    put("lost")
    clock.now += 2 * DAY
    before = list(catalog.store.list(""))
    planned = find_garbage(catalog)
    assert list(catalog.store.list("")) == before
    assert collect_garbage(catalog) == planned


def test_a_version_younger_than_a_day_is_kept(catalog, clock, put):
    lost = put("lost")
    clock.now += DAY / 2
    assert collect_garbage(catalog).versions == ()
    assert versions(catalog) == {lost}


def test_inputs_of_a_named_dataset_are_kept(catalog, clock, put):
    bronze, silver, gold = put("bronze"), put("silver"), put("gold", "gold")
    other, aside = put("other"), put("aside")
    derive(catalog, clock, silver, bronze)
    derive(catalog, clock, gold, silver)
    derive(catalog, clock, aside, other)
    clock.now += 2 * DAY
    assert set(collect_garbage(catalog).versions) == {other, aside}
    assert versions(catalog) == {bronze, silver, gold}
    assert {one.output for one in catalog.derivations()} == {silver, gold}


def test_inputs_of_a_young_dataset_are_kept(catalog, clock, put):
    old, young = put("old"), put("young")
    derive(catalog, clock, young, old)
    clock.now += 2 * DAY
    for item in catalog.store.list("manifests/"):
        if young[7:] in item.key:
            os.utime(catalog.store.root / item.key, (clock.now, clock.now))
    assert collect_garbage(catalog).versions == ()


def test_a_forgotten_name_keeps_no_version(catalog, clock, put):
    lost = put("lost", "lost")
    catalog.forget("lost")
    clock.now += 2 * DAY
    assert collect_garbage(catalog).versions == (lost,)


def test_garbage_collection_is_refused_while_a_dataset_is_added(catalog, clock, put):
    lost = put("lost")
    clock.now += 2 * DAY
    with gc_markers.adding(catalog):
        for item in catalog.store.list("adding/"):
            os.utime(catalog.store.root / item.key, (clock.now, clock.now))
        with pytest.raises(StoreBusy):
            collect_garbage(catalog)
    assert versions(catalog) == {lost}
    assert collect_garbage(catalog).versions == (lost,)


def test_the_marker_of_a_killed_add_expires(catalog, clock, put):
    put("lost")
    catalog.store.write("adding/dead.json", b"{}")
    with pytest.raises(StoreBusy):
        collect_garbage(catalog)
    clock.now += 2 * DAY
    collect_garbage(catalog)
    assert not list(catalog.store.list("adding/"))


def test_garbage_collection_deletes_nothing_if_a_manifest_can_not_be_read(catalog, clock, put):
    """What it mentions can't be known, so nothing can be known to be garbage."""
    kept = put("kept", "kept")
    put("lost")
    catalog.store.write(f"manifests/{kept[7:]}.json", b"{}")
    clock.now += 2 * DAY
    before = {item.key for item in catalog.store.list("objects/")}
    with pytest.raises(DataError, match="nothing was deleted"):
        collect_garbage(catalog)
    assert {item.key for item in catalog.store.list("objects/")} == before


@pytest.mark.parametrize("when", WHEN)
def test_garbage_collection_killed_at_any_file_operation_keeps_named_versions_whole(
    tmp_path, clock, put, when
):
    for fatal in itertools.count():
        place = tmp_path / f"store-{fatal}"
        quick = Catalog(FolderStore(place, disk=QuickDisk()), clock=clock)
        began = clock.now
        kept = put("kept", "kept", quick)
        lost = put("lost", None, quick)
        clock.now += 2 * DAY
        mortal = Catalog(FolderStore(place, disk=MortalDisk(fatal, when)), clock=clock)
        try:
            collect_garbage(mortal)
            break
        except Killed:
            pass
        clock.now += 2 * DAY
        collect_garbage(quick)
        assert versions(quick) == {kept}
        assert find_damaged_content(quick, kept) == []
        assert put("lost", "lost", quick) == lost
        assert find_damaged_content(quick, lost) == []
        clock.now = began
    assert fatal >= 5


def test_a_collected_dataset_can_be_added_again(catalog, clock, put):
    lost = put("lost")
    clock.now += 2 * DAY
    collect_garbage(catalog)
    assert put("lost") == lost == described({"own": b"lost", "shared": b"s"}).version
    assert find_damaged_content(catalog, lost) == []
