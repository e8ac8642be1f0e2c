"""Adding a folder: all or nothing, and no content twice."""

import itertools

import pytest

from tests.fakes.datasets import described, write_tree
from tests.fakes.disk import WHEN, Killed, MortalDisk, QuickDisk
from toolkit.datasets.errors import SourceChanged, StoreBusy, StoreFailed
from toolkit.datasets.store import gc_markers
from toolkit.datasets.store.add import add
from toolkit.datasets.store.catalog import Catalog
from toolkit.datasets.store.folder_store import FolderStore
from toolkit.datasets.store.scan import scan
from toolkit.datasets.store.transfer import LocalFile
from toolkit.datasets.store.verify import find_damaged_content

CONTENT = {"a": b"1", "sub/b": b"22", "same": b"22", "empty": b"", "z": bytes(500)}
DISTINCT = 1 + 2 + 500


@pytest.fixture
def root(tmp_path, small_chunks):
    return write_tree(tmp_path / "data", CONTENT)


def test_add_stores_a_folder_under_its_name_with_the_content_unchanged(catalog, root, no_sleep):
    added = add(catalog, root, name="digits", sleep=no_sleep)
    assert catalog.resolve("digits") == added.version == described(CONTENT).version
    assert find_damaged_content(catalog, added.version) == []
    assert (added.files, added.size, added.sent_bytes) == (5, 505, DISTINCT)


def test_add_does_not_send_content_again_that_the_store_has(catalog, root):
    add(catalog, root)
    assert add(catalog, root).sent_bytes == 0
    (root / "new").write_bytes(b"333")
    assert add(catalog, root).sent_bytes == 3


@pytest.mark.parametrize("when", WHEN)
def test_add_killed_at_any_file_operation_can_be_repeated_and_stores_the_whole_dataset(
    tmp_path, root, when
):
    """Kill the add at each file operation in turn, and repeat it.

    A named version is always whole. The next add resumes the files of the killed one, or ignores
    them.
    """
    version = described(CONTENT).version
    for fatal in itertools.count():
        store_root = tmp_path / f"store-{fatal}"
        disk = MortalDisk(fatal, when)
        catalog = Catalog(FolderStore(store_root, disk=disk))
        try:
            add(catalog, root, name="digits")
        except Killed:
            pass
        else:
            break
        catalog = Catalog(FolderStore(store_root, disk=QuickDisk()))
        if catalog.named_versions("digits"):
            assert find_damaged_content(catalog, catalog.resolve("digits")) == []
        assert add(catalog, root, name="digits").version == version
        assert find_damaged_content(catalog, version) == []
        assert [one.number for one in catalog.named_versions("digits")] == [1]
    assert fatal > 20, "fewer operations than there are means that nothing was watched"


def test_upload_refuses_a_file_that_changed_since_it_was_hashed(store, root):
    scanned = scan(root)
    file = next(file for file in scanned.manifest.files if file.path == "z")
    (root / "z").write_bytes(b"y" * 500)
    upload = store.upload(file)
    with pytest.raises(SourceChanged):
        upload.send(LocalFile(root / "z"), upload.missing()[0], memoryview(bytearray(1000)))
    upload.abandon()
    assert not list(store.list("objects/"))


def test_two_uploads_of_the_same_content_both_succeed(store, root):
    file = next(file for file in scan(root).manifest.files if file.path == "z")
    first, second = store.upload(file), store.upload(file)
    for upload in (first, second):
        for span in upload.missing():
            upload.send(LocalFile(root / "z"), span, memoryview(bytearray(1000)))
        store.finish([upload])
    assert store.upload(file) is None


def test_add_waits_ten_minutes_for_garbage_collection_and_then_fails(catalog, root):
    pauses = []
    with gc_markers.collecting(catalog), pytest.raises(StoreBusy):
        add(catalog, root, sleep=pauses.append)
    assert sum(pauses) >= 600
    assert not list(catalog.store.list("adding/"))
    add(catalog, root)


def test_an_add_marker_older_than_its_lifetime_is_not_refreshed(catalog, clock, root):
    """Set the clock beyond the marker's lifetime.

    Garbage collection may have judged the add dead, and deleted content that the add relied on.
    """
    with gc_markers.adding(catalog) as marker:
        clock.now += 3600
        with pytest.raises(StoreBusy):
            marker.refresh()


def test_add_names_a_store_that_can_not_be_written_in_its_error(tmp_path, root):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreFailed, match="file"):
        add(Catalog(FolderStore(tmp_path / "file" / "store")), root)
