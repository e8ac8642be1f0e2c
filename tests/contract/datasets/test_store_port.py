"""The suite for both stores: a folder, and moto's S3 over HTTP."""

from __future__ import annotations

import errno
import itertools
import os
import time
from pathlib import Path

import pytest
from botocore.stub import Stubber

from tests.fakes import s3_server
from tests.fakes.datasets import described, tree, write_tree
from tests.fakes.s3_conflicts import Conflicts
from toolkit.datasets import chunks
from toolkit.datasets.cache.cache import Cache
from toolkit.datasets.errors import (
    ContentCorrupt,
    SourceChanged,
    StoreBusy,
    StoreFailed,
    StoreUnreachable,
)
from toolkit.datasets.store import gc_markers
from toolkit.datasets.store.add import add
from toolkit.datasets.store.catalog import Catalog
from toolkit.datasets.store.folder_store import FolderStore
from toolkit.datasets.store.garbage_collection import collect_garbage
from toolkit.datasets.store.open_store import open_store
from toolkit.datasets.store.port import object_key
from toolkit.datasets.store.s3_store import S3Store
from toolkit.datasets.store.scan import scan
from toolkit.datasets.store.transfer import LocalFile
from toolkit.datasets.store.verify import find_damaged_content
from toolkit.training.checkpoint.s3_tier import S3Tier
from toolkit.training.io.parallel import BUFFER

pytestmark = pytest.mark.timeout(900)

CHUNK = 600 << 10  # more than two buffers; moto copies and hashes megabytes many times
CONTENT = {
    "small": b"1",
    "empty": b"",
    "deep/er/ü": b"22",
    "big": bytes(range(256)) * 5500 + b"end",  # three chunks
}
NAMES = itertools.count()
DAY = 86_400


@pytest.fixture(scope="module")
def endpoint():
    with s3_server.serving() as url:
        yield url


@pytest.fixture(autouse=True)
def parts(monkeypatch):
    monkeypatch.setattr(chunks, "CHUNK", CHUNK)
    monkeypatch.setattr("moto.s3.models.S3_UPLOAD_PART_MIN_SIZE", 1)  # the server is in here


@pytest.fixture
def aws(monkeypatch, endpoint):
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    import boto3

    client = boto3.client("s3")
    yield client
    client.close()


@pytest.fixture(params=["folder", "s3"])
def store(request, tmp_path):
    if request.param == "folder":
        yield FolderStore(tmp_path / "store")
        return
    client = request.getfixturevalue("aws")
    bucket = f"data-{next(NAMES)}"
    client.create_bucket(Bucket=bucket)
    yield S3Store(bucket, "some/where", client=client)


@pytest.fixture
def root(tmp_path):
    return write_tree(tmp_path / "data", CONTENT)


def overwrite(store, key, content):
    """Replace a record, as a program outside the toolkit would."""
    store.delete([key])
    store.write(key, content)


def test_a_record_that_is_always_the_same_is_written_once_and_then_marked(aws):
    aws.create_bucket(Bucket="same")
    store = S3Store("same", "x", client=aws)
    store.write_same("manifests/1.json", b"one")
    (first,) = store.list("")
    store.write_same("manifests/1.json", b"one")
    assert [item.key for item in store.list("")] == ["manifests/1.json", "wanted/manifests/1.json"]
    (again,) = store.list("manifests/")
    assert again.modified == first.modified


def test_small_content_that_another_process_has_stored_meanwhile_is_no_error(store, root):
    file = next(file for file in scan(root).manifest.files if len(file.chunks) == 1)
    uploads = [store.upload(file), store.upload(file)]
    for upload in uploads:
        for span in upload.missing():
            upload.send(LocalFile(root / file.path), span, memoryview(bytearray(BUFFER)))
        store.finish([upload])
        upload.abandon()
    assert store.upload(file) is None


@pytest.fixture
def in_s3(aws):
    """A store in S3 without pauses, and its bucket's name."""
    bucket = f"data-{next(NAMES)}"
    aws.create_bucket(Bucket=bucket)
    store = S3Store(bucket, "x", client=aws)
    store._bucket.sleep = lambda _: None
    return store, bucket


@pytest.mark.parametrize("operation", ["PutObject", "CompleteMultipartUpload"])
def test_after_a_conflict_s3_has_nothing_and_the_write_is_repeated(aws, in_s3, root, operation):
    store, _ = in_s3
    conflicts = Conflicts(aws, operation, 2)
    version = add(Catalog(store), root).version
    assert conflicts.left == 0
    assert find_damaged_content(Catalog(store), version) == []


@pytest.mark.parametrize("operation", ["PutObject", "CompleteMultipartUpload"])
def test_conflicts_without_an_end_are_an_error_that_may_pass(aws, in_s3, root, operation):
    store, _ = in_s3
    Conflicts(aws, operation, 1000)
    with pytest.raises(StoreUnreachable, match="ConditionalRequestConflict"):
        add(Catalog(store), root)


def test_a_record_is_written_by_one_of_two_also_after_a_conflict(aws, in_s3):
    store, _ = in_s3
    Conflicts(aws, "PutObject", 1)
    assert store.write_new("names/x/1.json", b"one")
    Conflicts(aws, "PutObject", 1)
    assert not store.write_new("names/x/1.json", b"two")


def junk(path, *, longer):
    """Return other content than a file's, of the same size or not."""
    content = bytearray(CONTENT[path])
    content[-1] ^= 1
    return bytes(content) + b"!" * longer


def stored_key(store, root, path):
    file = next(file for file in scan(root).manifest.files if file.path == path)
    return file, f"x/{object_key(file)}"


@pytest.mark.parametrize("path", ["small", "big"])
@pytest.mark.parametrize(
    "kind",
    [{}, {"longer": True}, {"ChecksumAlgorithm": "SHA256"}],
    ids=["same size", "longer", "hashed"],
)
def test_other_content_under_a_files_name_is_an_error_of_add(aws, in_s3, root, path, kind):
    """A job may add any object, and nobody's job may replace it."""
    store, bucket = in_s3
    _, key = stored_key(store, root, path)
    options = dict(kind)
    content = junk(path, longer=options.pop("longer", False))
    aws.put_object(Bucket=bucket, Key=key, Body=content, **options)
    with pytest.raises(ContentCorrupt, match=f"s3://{bucket}/{key} has other content") as error:
        add(Catalog(store), root)
    assert f"aws s3 rm s3://{bucket}/{key}" in error.value.next_step
    assert list(store.list("manifests/")) == []
    aws.delete_object(Bucket=bucket, Key=key)
    version = add(Catalog(store), root).version
    assert find_damaged_content(Catalog(store), version) == []


@pytest.mark.parametrize("path", ["small", "big"])
def test_other_content_that_comes_before_the_end_of_an_upload_is_an_error_too(
    aws, in_s3, root, path
):
    store, bucket = in_s3
    file, key = stored_key(store, root, path)
    upload = store.upload(file)
    aws.put_object(Bucket=bucket, Key=key, Body=junk(path, longer=False))
    source, buffer = LocalFile(root / path), memoryview(bytearray(BUFFER))

    def finish():
        for span in upload.missing():
            upload.send(source, span, buffer)
        store.finish([upload])

    with pytest.raises(ContentCorrupt, match="has other content"):
        finish()


@pytest.mark.parametrize("path", ["small", "empty", "big"])
def test_content_that_another_program_has_copied_into_s3_is_read_and_believed(
    aws, in_s3, root, path
):
    """S3 has no SHA-256 of it."""
    store, bucket = in_s3
    file, key = stored_key(store, root, path)
    aws.put_object(Bucket=bucket, Key=key, Body=CONTENT[path])
    assert store.upload(file) is None


def test_content_that_was_added_is_compared_by_its_hash_and_not_read_again(
    in_s3, root, monkeypatch
):
    store, _ = in_s3
    add(Catalog(store), root)

    def reads(**_):
        pytest.fail("the content was read")

    monkeypatch.setattr(store._bucket.client, "get_object", reads)
    assert all(store.upload(file) is None for file in scan(root).manifest.files)


def test_another_record_in_place_of_a_manifest_is_an_error_of_add(aws, in_s3, root):
    store, bucket = in_s3
    key = f"x/manifests/{scan(root).manifest.version[7:]}.json"
    aws.put_object(Bucket=bucket, Key=key, Body=b"{}")
    with pytest.raises(ContentCorrupt, match=f"{key} has other content") as error:
        add(Catalog(store), root)
    assert f"aws s3 rm s3://{bucket}/{key}" in error.value.next_step


def test_a_store_record_is_read_as_it_was_written(store):
    assert store.read("names/x/1.json") is None
    store.write("names/x/1.json", b"one")
    store.write("names/x/1.json", b"two")
    assert store.read("names/x/1.json") == b"two"
    assert [item.key for item in store.list("names/")] == ["names/x/1.json"]
    (item,) = store.list("names/x/")
    assert (item.size, item.modified) == (3, pytest.approx(time.time(), abs=60))
    store.delete(["names/x/1.json", "names/x/absent.json"])
    assert list(store.list("")) == []


def test_write_new_succeeds_for_the_first_writer_only(store):
    assert store.write_new("names/x/1.json", b"one")
    assert not store.write_new("names/x/1.json", b"two")
    assert store.read("names/x/1.json") == b"one"


def test_a_dataset_that_was_added_is_cached_unchanged(store, root, tmp_path):
    catalog = Catalog(store)
    added = add(catalog, root, name="all")
    assert added.version == described(CONTENT).version
    assert find_damaged_content(catalog, added.version) == []
    assert add(catalog, root, name="all").sent_bytes == 0
    cache = Cache(tmp_path / "cache", limit=1 << 30)
    held = cache.hold(added.version, lambda: _opened(catalog, added.version))
    assert tree(held.path) == CONTENT


def _opened(catalog, version):
    import contextlib

    return contextlib.nullcontext((catalog.manifest(version), catalog.store))


def test_an_interrupted_upload_sends_only_the_missing_parts(store, root, monkeypatch):
    """Interrupt an upload after the first and the last part."""
    scanned = scan(root)
    big = next(file for file in scanned.manifest.files if file.path == "big")
    source, buffer = LocalFile(root / "big"), memoryview(bytearray(BUFFER))
    upload = store.upload(big)
    spans = upload.missing()
    assert len(spans) == 3
    upload.send(source, spans[0], buffer)
    upload.send(source, spans[2], buffer)
    upload.abandon()
    sent = []
    if isinstance(store, S3Store):
        client = store._bucket.client
        real = client.upload_part
        monkeypatch.setattr(
            client,
            "upload_part",
            lambda **arguments: sent.append(arguments["PartNumber"]) or real(**arguments),
        )
        add(Catalog(store), root)
        assert sent == [2]
    else:
        again = store.upload(big)
        assert again.missing() == (spans[1],)
        again.abandon()
        add(Catalog(store), root)
    assert find_damaged_content(Catalog(store), scanned.manifest.version) == []


@pytest.mark.parametrize("path", ["small", "big"])
def test_upload_refuses_content_with_another_hash_than_the_manifests(store, root, path):
    file = next(one for one in scan(root).manifest.files if one.path == path)
    data = bytearray(CONTENT[path])
    data[-1] ^= 1
    (root / path).write_bytes(data)
    upload = store.upload(file)
    span, buffer = upload.missing()[-1], memoryview(bytearray(BUFFER))
    with pytest.raises(SourceChanged):
        upload.send(LocalFile(root / path), span, buffer)
    upload.abandon()
    assert not list(store.list("objects/"))


@pytest.mark.parametrize("damage", ["gone", "flipped", "short"])
def test_damaged_content_is_found_by_verify_and_refused_by_a_fill(store, root, tmp_path, damage):
    catalog = Catalog(store)
    version = add(catalog, root).version
    big = next(file for file in catalog.manifest(version).files if file.path == "big")
    key, data = object_key(big), bytearray(CONTENT["big"])
    if damage == "gone":
        store.delete([key])
    elif damage == "short":
        overwrite(store, key, bytes(data[:-1]))
    else:
        data[CHUNK + 5] ^= 1
        overwrite(store, key, bytes(data))
    assert find_damaged_content(catalog, version) == ["big"]
    cache = Cache(tmp_path / "cache", limit=1 << 30)
    with pytest.raises(ContentCorrupt, match="big"):
        cache.hold(version, lambda: _opened(catalog, version))
    assert cache.entries() == []


def test_garbage_collection_keeps_a_named_version_and_its_content(store, root, tmp_path):
    clock = [time.time()]
    catalog = Catalog(store, clock=lambda: clock[0])
    kept_version = add(catalog, root, name="kept").version
    add(catalog, write_tree(tmp_path / "lost", {"own": b"lost", "small": b"1"}))
    clock[0] += 2 * DAY
    garbage = collect_garbage(catalog)
    assert (len(garbage.versions), garbage.size) == (1, 4)
    assert find_damaged_content(catalog, kept_version) == []


def test_add_and_garbage_collection_exclude_each_other(store):
    catalog = Catalog(store)
    with gc_markers.adding(catalog), pytest.raises(StoreBusy), gc_markers.collecting(catalog):
        pytest.fail("both are at it")
    with (
        gc_markers.collecting(catalog),
        pytest.raises(StoreBusy),
        gc_markers.adding(catalog, sleep=lambda _: None, patience=4),
    ):
        pytest.fail("both are at it")
    assert list(store.list("")) == []


def test_stale_uploads_are_deleted(store, root):
    file = next(one for one in scan(root).manifest.files if one.path == "big")
    upload = store.upload(file)
    upload.abandon()
    store.delete_stale_uploads(0)  # moto dates every upload in 2010
    assert _begun(store) == 1
    store.delete_stale_uploads(time.time() + 60)
    assert _begun(store) == 0


def _begun(store):
    if isinstance(store, S3Store):
        return len(list(store._bucket.uploads("")))
    return len(list(store.list("incoming/")))


def test_a_process_without_credentials_is_told_to_run_in_a_job(aws, monkeypatch):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, "/nonexistent")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    import boto3

    client = boto3.Session().client("s3")
    with pytest.raises(StoreFailed, match="no AWS credentials") as error:
        S3Store("any", "", client=client).read("names/x")
    assert "srun" in error.value.next_step
    client.close()


def test_a_token_that_no_header_can_carry_fails_and_is_not_asked_again(aws, monkeypatch):
    monkeypatch.setenv("AWS_SESSION_TOKEN", "first\nplanted")
    with pytest.raises(StoreFailed, match="such as a newline") as error:
        S3Store("any", "").read("names/x")
    assert not isinstance(error.value, StoreUnreachable)
    assert "planted" not in f"{error.value} {error.value.next_step}"


def test_s3_errors_become_store_errors(aws, monkeypatch):
    with pytest.raises(StoreFailed, match="NoSuchBucket"):
        S3Store("never-made", "", client=aws).read("names/x")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    import boto3
    from botocore.config import Config

    unreachable_client = boto3.client("s3", config=Config(retries={"total_max_attempts": 1}))
    with pytest.raises(StoreUnreachable):
        S3Store("any", "", client=unreachable_client).read("names/x")
    unreachable_client.close()


@pytest.mark.parametrize(
    ("code", "status", "kind"),
    [
        ("SlowDown", 503, StoreUnreachable),
        ("InternalError", 500, StoreUnreachable),
        ("RequestTimeout", 400, StoreUnreachable),
        ("AccessDenied", 403, StoreFailed),
    ],
)
def test_an_s3_error_that_may_pass_is_unreachable_and_a_refusal_is_a_failure(
    aws, code, status, kind
):
    with Stubber(aws) as stubber:
        stubber.add_client_error("get_object", code, http_status_code=status)
        with pytest.raises(StoreFailed, match=code) as error:
            S3Store("any", "", client=aws).read("names/x")
    assert type(error.value) is kind


@pytest.mark.parametrize(
    ("number", "kind"), [(errno.EIO, StoreUnreachable), (errno.EACCES, StoreFailed)]
)
def test_a_folder_error_that_may_pass_is_unreachable_and_a_refusal_is_a_failure(
    tmp_path, monkeypatch, number, kind
):
    def fails(*_, **__):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(Path, "read_bytes", fails)
    with pytest.raises(StoreFailed) as error:
        FolderStore(tmp_path).read("names/x")
    assert type(error.value) is kind


def test_the_url_of_a_store_decides_between_s3_and_a_folder(aws, tmp_path):
    assert open_store("s3://a-bucket/pre/fix/").url == "s3://a-bucket/pre/fix"
    assert open_store(str(tmp_path)).url == str(tmp_path)


@pytest.mark.parametrize(
    "client", [lambda: S3Store("b", "")._bucket.client, lambda: S3Tier("b", "p")._bucket.client]
)
def test_the_environment_wins_over_the_clusters_region_and_endpoint_for_s3(
    tmp_path, monkeypatch, client
):
    """Read the region first from the site file, then from the environment.

    A node has credentials by its role, and no region.
    """
    for name in ("AWS_DEFAULT_REGION", "AWS_REGION", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "absent"))
    site = tmp_path / "training.json"
    site.write_text('{"aws_region": "eu-north-1", "aws_endpoint_url": "http://127.0.0.1:9"}')
    monkeypatch.setenv("TOOLKIT_SITE_FILE", str(site))
    client_meta = client().meta
    assert (client_meta.region_name, client_meta.endpoint_url) == (
        "eu-north-1",
        "http://127.0.0.1:9",
    )
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-west-2")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:10")
    client_meta = client().meta
    assert (client_meta.region_name, client_meta.endpoint_url) == (
        "us-west-2",
        "http://127.0.0.1:10",
    )
