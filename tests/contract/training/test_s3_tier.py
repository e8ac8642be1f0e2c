"""Checkpoints in moto's S3: whole, checked, and resumed after a kill."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import boto3
import pytest
from botocore.exceptions import EndpointConnectionError
from moto import mock_aws

from tests.fakes import s3_server
from tests.fakes.training import BytesCodec, Weights
from tests.patience import PROGRAM_SECONDS
from tests.unit.render.render_samples import FACTS, a_config
from toolkit.render.playbook_vars import site_vars
from toolkit.training.checkpoint import hashed_file, manifest, s3_tier
from toolkit.training.checkpoint.checkpointer import Checkpointer
from toolkit.training.checkpoint.s3_tier import S3Tier
from toolkit.training.distributed.process_group import Solo
from toolkit.training.errors import CheckpointUnreadable
from toolkit.training.io.s3_client import s3_client

BLOCK = 1000  # in place of megabytes, which moto copies and hashes many times
SIZE = 2 * BLOCK + 70  # three parts


class Cut(Exception):  # noqa: N818  # says what happened
    """The process ends at this call."""


class Through:
    """A client that passes other calls on to another client."""

    def __init__(self, client) -> None:
        self._client = client

    def __getattr__(self, name: str) -> object:
        return getattr(self._client, name)


class CutShort(Through):
    """A client that stops answering after so many parts."""

    def __init__(self, client, parts) -> None:
        super().__init__(client)
        self._left, self.sent = parts, 0

    def upload_part(self, **arguments):
        if self._left == 0:
            raise Cut
        self._left -= 1
        self.sent += 1
        return self._client.upload_part(**arguments)


class Telling(Through):
    """A client that knows the checksums of the parts, as S3 does.

    It checks them when an upload is completed.
    """

    def __init__(self, client) -> None:
        super().__init__(client)
        self.sums = {}

    def upload_part(self, **arguments):
        answer = self._client.upload_part(**arguments)
        self.sums[answer["ETag"]] = arguments["ChecksumSHA256"]
        return answer

    def get_paginator(self, name):
        real = self._client.get_paginator(name)
        return SimpleNamespace(paginate=lambda **asked: map(self._tell, real.paginate(**asked)))

    def _tell(self, page):
        parts = page.get("Parts", ())
        known = [part | {"ChecksumSHA256": self.sums[part["ETag"]]} for part in parts]
        return page | {"Parts": known}

    def complete_multipart_upload(self, **arguments):
        for part in arguments["MultipartUpload"]["Parts"]:
            assert part["ChecksumSHA256"] == self.sums[part["ETag"]], "InvalidPart"
        return self._client.complete_multipart_upload(**arguments)


@pytest.fixture
def client(monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setattr("moto.s3.models.S3_UPLOAD_PART_MIN_SIZE", 1)
    for module in (hashed_file, manifest, s3_tier):
        monkeypatch.setattr(module, "BLOCK", BLOCK)
    with mock_aws():
        made = boto3.client("s3", region_name="us-east-1")
        made.create_bucket(Bucket="checkpoints")
        yield made


@pytest.fixture
def content():
    return os.urandom(SIZE)


def checkpointer(root, client):
    tiers = (S3Tier("checkpoints", "runs/7", client=client),)
    return Checkpointer(root, Solo(), codec=BytesCodec(), tiers=tiers)


def test_what_is_in_s3_comes_back_when_the_disk_is_gone(tmp_path, client, content):
    found = checkpointer(tmp_path / "a", client).save({"model": Weights(content)}, step=1, facts={})
    assert found.problems == ()
    model = Weights()
    loaded = checkpointer(tmp_path / "b", client).load({"model": model})
    assert (loaded.name, model.content == content) == (found.name, True)


def test_on_a_cluster_a_run_comes_back_from_where_cluster_yaml_says(tmp_path, monkeypatch):
    """Take all settings from the site file, and credentials from the role.

    A node has nothing else. The parts are as large as there.
    """
    content = os.urandom(2 * hashed_file.BLOCK + 1000)
    for name in ("AWS_DEFAULT_REGION", "AWS_REGION", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    site = tmp_path / "training.json"
    monkeypatch.setenv("TOOLKIT_SITE_FILE", str(site))
    with s3_server.serving() as url:
        config = a_config(
            aws={"region": "us-east-1", "endpoint_url": url}, training={"checkpoints": "bucket"}
        )
        site.write_text(json.dumps(json.loads(site_vars(config, FACTS))["toolkit_site_facts"]))
        s3_client(1).create_bucket(Bucket=FACTS.bucket)
        first, again = (
            Checkpointer(
                tmp_path / folder, Solo(), codec=BytesCodec(), tiers=(S3Tier.of_cluster("ada/7"),)
            )
            for folder in ("a", "b")
        )
        assert first.save({"model": Weights(content)}, step=1, facts={}).problems == ()
        model = Weights()
        again.load({"model": model})
        keys = s3_client(1).list_objects_v2(Bucket=FACTS.bucket)["Contents"]
    assert model.content == content
    assert {key["Key"].rpartition("/step-")[0] for key in keys} == {"checkpoints/ada/7"}


def test_a_cluster_without_a_place_for_checkpoints_says_where_to_name_one(tmp_path, monkeypatch):
    monkeypatch.setenv("TOOLKIT_SITE_FILE", str(tmp_path / "absent"))
    with pytest.raises(LookupError, match=r"training\.checkpoints in cluster\.yaml"):
        S3Tier.of_cluster("ada/7")


def test_a_place_named_by_the_environment_needs_no_site_file(tmp_path, monkeypatch, client):
    """Name the place as on racks.

    They have no file of a cluster.
    """
    monkeypatch.setenv("TOOLKIT_SITE_FILE", str(tmp_path / "absent"))
    monkeypatch.setenv("TOOLKIT_CHECKPOINTS", "s3://checkpoints/users")
    tier = S3Tier.of_cluster("ada/7")
    tier._client = client
    Checkpointer(tmp_path / "a", Solo(), codec=BytesCodec(), tiers=(tier,)).save(
        {"model": Weights(b"1")}, step=1, facts={}
    )
    (key, *_) = (item["Key"] for item in client.list_objects_v2(Bucket="checkpoints")["Contents"])
    assert key.startswith("users/ada/7/step-00000001.")


@pytest.mark.parametrize("outlives_notice", [False, True])
def test_a_stop_waits_for_s3_if_the_run_may_go_on_without_this_filesystem(
    tmp_path, client, outlives_notice
):
    tier = S3Tier("checkpoints", "runs/7", client=client, outlives_notice=outlives_notice)
    checkpoints = Checkpointer(tmp_path, Solo(), codec=BytesCodec(), tiers=(tier,))
    found = checkpoints.save({"model": Weights(b"1")}, step=1, facts={}, urgent=True)
    assert (found.name in tier.names()) == outlives_notice


def test_an_upload_that_was_cut_short_goes_on_with_the_parts_that_are_missing(
    tmp_path, client, content
):
    checkpoints = checkpointer(tmp_path, CutShort(client, 2))
    found = checkpoints.save({"model": Weights(content)}, step=1, facts={})
    assert "Cut" in found.problems[0]
    tier, folder = S3Tier("checkpoints", "runs/7", client=client), tmp_path / found.name
    assert tier.names() == []
    again = CutShort(client, 9)
    second = S3Tier("checkpoints", "runs/7", client=again)
    second.push(folder, manifest.read(folder).files)
    second.commit(folder)
    assert again.sent == 1
    assert tier.names() == [found.name]
    shutil.rmtree(folder)
    model = Weights()
    checkpointer(tmp_path, client).load({"model": model})
    assert model.content == content


class Dying(Through):
    """A client whose process ends before one of its calls."""

    def __init__(self, client, call) -> None:
        super().__init__(client)
        self._call = call

    def __getattr__(self, name: str) -> object:
        if name == self._call:
            raise Cut
        return super().__getattr__(name)


@pytest.mark.parametrize("size", [BLOCK, SIZE])
def test_a_save_after_an_upload_cut_short_and_a_lost_disk_is_what_s3_gives_back(
    tmp_path, client, size
):
    """Save other bytes of the same step.

    After an interruption the nodes differ, and so does the order of summing.
    """
    told = Telling(client)
    checkpointer(tmp_path / "a", told).save({"model": Weights(bytes(size))}, step=1, facts={})
    cut = Dying(told, "complete_multipart_upload" if size > BLOCK else "put_object")
    checkpointer(tmp_path / "a", cut).save({"model": Weights(os.urandom(size))}, step=2, facts={})
    content = os.urandom(size)
    again = checkpointer(tmp_path / "b", told)
    again.load({"model": Weights()})
    assert again.save({"model": Weights(content)}, step=2, facts={}).problems == ()
    model = Weights()
    loaded = checkpointer(tmp_path / "c", told).load({"model": model})
    assert (loaded.rejected, model.content == content) == ((), True)


def test_a_part_of_other_bytes_is_sent_again(tmp_path, client, content):
    told = Telling(client)
    found = checkpointer(tmp_path, CutShort(told, 2)).save(
        {"model": Weights(content)}, step=1, facts={}
    )
    for tag in told.sums:
        told.sums[tag] = "another"
    tier, folder = S3Tier("checkpoints", "runs/7", client=told), tmp_path / found.name
    tier.push(folder, manifest.read(folder).files)
    tier.commit(folder)
    model = Weights()
    checkpointer(tmp_path / "b", client).load({"model": model})
    assert model.content == content


def test_other_bytes_in_s3_are_never_loaded(tmp_path, client, content):
    checkpoints = checkpointer(tmp_path, client)
    for step in (1, 2):
        found = checkpoints.save({"model": Weights(content + bytes([step]))}, step=step, facts={})
    shutil.rmtree(tmp_path)
    client.put_object(
        Bucket="checkpoints", Key=f"runs/7/{found.name}/weights.bin", Body=content + b"\x03"
    )
    model = Weights()
    loaded = checkpointer(tmp_path, client).load({"model": model})
    assert (loaded.facts["step"], model.content[-1]) == (1, 1)
    assert "the content in S3 differs" in loaded.rejected[0]


def test_what_is_missing_in_s3_is_damage_and_what_s3_does_not_tell_is_none(
    tmp_path, client, monkeypatch
):
    checkpoints = checkpointer(tmp_path, client)
    for step in (1, 2):
        found = checkpoints.save({"model": Weights(b"content")}, step=step, facts={})
    shutil.rmtree(tmp_path)

    def unheard(**_):
        raise EndpointConnectionError(endpoint_url="https://s3")

    with monkeypatch.context() as patch:
        patch.setattr(client, "get_object", unheard)
        with pytest.raises(CheckpointUnreadable, match="EndpointConnectionError"):
            checkpointer(tmp_path, client).load({"model": Weights()})
    client.delete_object(Bucket="checkpoints", Key=f"runs/7/{found.name}/weights.bin")
    loaded = checkpointer(tmp_path, client).load({"model": Weights()})
    assert (loaded.facts["step"], loaded.rejected[0][-21:]) == (1, "S3 has no such object")


def test_only_the_newest_are_kept_and_nothing_is_left_of_the_others(tmp_path, client):
    checkpoints = checkpointer(tmp_path, client)
    for step in (1, 2, 3, 4):
        checkpoints.save({"model": Weights(b"small")}, step=step, facts={})
    keys = [item["Key"] for item in client.list_objects_v2(Bucket="checkpoints")["Contents"]]
    assert {key.split("/")[2] for key in keys} == {"step-00000003.000003", "step-00000004.000004"}


ENDLESS = """
import threading
from pathlib import Path
from types import SimpleNamespace
from toolkit.training.checkpoint.s3_tier import S3Tier
from toolkit.training.checkpoint.hashed_file import BLOCK, HashingWriter

class Endless:
    def head_object(self, **_):
        return {"Metadata": {}}
    def get_paginator(self, _):
        return SimpleNamespace(paginate=lambda **_: [])
    def create_multipart_upload(self, **_):
        return {"UploadId": "1"}
    def upload_part(self, **_):
        reached.set()
        threading.Event().wait()

reached = threading.Event()
with HashingWriter(Path("weights.bin")) as writer:
    writer.write(bytes(2 * BLOCK))
push = S3Tier("bucket", "runs", client=Endless()).push
threading.Thread(target=push, args=(Path(), [writer.entry()]), daemon=True).start()
assert reached.wait(120)
"""


def test_a_process_that_ends_waits_for_no_part_of_an_upload_it_left_behind(tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    command = [sys.executable, "-c", ENDLESS]
    subprocess.run(command, check=True, cwd=tmp_path, env=environment, timeout=PROGRAM_SECONDS)
