"""The fault matrix of the S3 tier, against a real server.

The node's own disk is lost after each fault. S3 alone then gives the last good state, or a clear
error.
"""

import contextlib
import os
import random
import shutil
import threading

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError, ConnectionClosedError

from tests.fakes import s3_server
from tests.fakes.checkpoint_disk import Killed
from tests.fakes.training import BytesCodec, Weights
from toolkit.training.checkpoint import hashed_file, manifest
from toolkit.training.checkpoint.checkpointer import Checkpointer
from toolkit.training.checkpoint.s3_tier import S3Tier
from toolkit.training.distributed.process_group import Solo
from toolkit.training.errors import CheckpointFailed

BLOCK = 1000
CONTENT = {step: random.Random(step).randbytes(2 * BLOCK + 70) for step in (1, 2, 3)}  # noqa: S311  # the same every time
CALLS = (
    "create_multipart_upload",
    "upload_part",
    "complete_multipart_upload",
    "put_object",
    "head_object",
    "delete_object",
    "abort_multipart_upload",
)


@pytest.fixture(scope="module")
def endpoint():
    with s3_server.serving() as url:
        yield url


@pytest.fixture
def client(endpoint, monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    # The server runs in this process.
    monkeypatch.setattr("moto.s3.models.S3_UPLOAD_PART_MIN_SIZE", 1)
    monkeypatch.setattr(os, "fsync", lambda _: None)
    for module in (hashed_file, manifest):
        monkeypatch.setattr(module, "BLOCK", BLOCK)
    once = Config(retries={"total_max_attempts": 1})
    made = boto3.client("s3", region_name="us-east-1", endpoint_url=endpoint, config=once)
    made.create_bucket(Bucket="faults")
    yield made
    made.close()


class Faulty:
    """A client with a fault at one of its calls."""

    def __init__(self, client, number, fault) -> None:
        self._client, self._number, self._fault = client, number, fault
        self._lock, self.met = threading.Lock(), []

    def __getattr__(self, name: str) -> object:
        call = getattr(self._client, name)
        return self._guarded(name, call) if name in CALLS else call

    def _guarded(self, name, call):
        def guarded(**arguments):
            with self._lock:
                self.met.append(name)
                struck = len(self.met) == self._number
            return self._fault(call, arguments) if struck else call(**arguments)

        return guarded


def killed_before(_call, _arguments):
    raise Killed


def killed_after(call, arguments):
    with contextlib.suppress(ClientError):  # "not found" is an answer as well
        call(**arguments)
    raise Killed


def answer_lost(call, arguments):
    with contextlib.suppress(ClientError):
        call(**arguments)
    raise ConnectionClosedError(endpoint_url="http://s3")


def checkpointer(root, client, prefix):
    tiers = (S3Tier("faults", prefix, client=client),)
    return Checkpointer(root, Solo(), codec=BytesCodec(), tiers=tiers)


def save(root, client, prefix, step):
    found = checkpointer(root, client, prefix)
    return found.save({"model": Weights(CONTENT[step])}, step=step, facts={})


def load(root, client, prefix):
    """Load from S3 alone, check the content, and return the step."""
    shutil.rmtree(root, ignore_errors=True)
    model = Weights()
    loaded = checkpointer(root, client, prefix).load({"model": model})
    assert model.content == CONTENT[loaded.facts["step"]]
    return loaded.facts["step"]


@pytest.mark.parametrize("fault", [killed_before, killed_after, answer_lost])
def test_a_fault_at_any_call_of_an_upload_leaves_the_last_good_state_in_s3(tmp_path, client, fault):
    steps, met = [], set()
    for number in range(1, 50):
        root, prefix = tmp_path / str(number), f"{fault.__name__}/{number}"
        save(root, client, prefix, 1)
        faulty = Faulty(client, number, fault)
        with contextlib.suppress(Killed):
            save(root, faulty, prefix, 2)
        met.update(faulty.met)
        steps.append(load(root, client, prefix))
        assert save(root, client, prefix, 3).problems == ()  # a later save works after each fault
        assert load(root, client, prefix) == 3
        if len(faulty.met) < number:
            break
    assert {"create_multipart_upload", "upload_part", "complete_multipart_upload"} <= met
    assert (set(steps), steps) == ({1, 2}, sorted(steps))


@pytest.mark.parametrize("fault", [killed_after, answer_lost])
def test_an_upload_cut_short_at_any_call_is_gone_on_with(tmp_path, client, fault):
    for number in range(1, 50):
        root, prefix = tmp_path / str(number), f"again/{fault.__name__}/{number}"
        faulty = Faulty(client, number, fault)
        with contextlib.suppress(Killed):
            save(root, faulty, prefix, 1)
        (folder,) = root.iterdir()
        tier = S3Tier("faults", prefix, client=client)
        tier.push(folder, manifest.read(folder).files)
        tier.commit(folder)
        assert load(root, client, prefix) == 1
        if len(faulty.met) < number:
            break
    assert number >= 8


def test_what_a_kill_left_half_done_is_gone_with_the_next_commit(tmp_path, client):
    prefix = "left"
    save(tmp_path, client, prefix, 1)
    with pytest.raises(Killed):
        save(tmp_path, Faulty(client, 5, killed_after), prefix, 2)
    tier = S3Tier("faults", prefix, client=client)
    assert tier.unfinished() == ["step-00000002.000002"]
    save(tmp_path, client, prefix, 3)
    assert (tier.unfinished(), len(tier.names())) == ([], 2)
    uploads = client.list_multipart_uploads(Bucket="faults", Prefix=prefix)
    assert uploads.get("Uploads", []) == []


@pytest.mark.parametrize("name", ["weights.bin", "manifest.json", "COMMITTED"])
@pytest.mark.parametrize("damage", ["flip", "cut", "empty", "missing", "swap"])
def test_damage_to_any_object_is_found_and_the_one_before_is_loaded(tmp_path, client, name, damage):
    prefix = f"{damage}/{name}"
    for step in (1, 2):
        save(tmp_path, client, prefix, step)
    key = f"{prefix}/step-00000002.000002/{name}"
    content = bytearray(client.get_object(Bucket="faults", Key=key)["Body"].read())
    if damage == "flip":
        content[len(content) // 2] ^= 1
    elif damage == "cut":
        del content[len(content) // 2 :]
    elif damage == "empty":
        content.clear()
    elif damage == "swap":
        older = f"{prefix}/step-00000001.000001/{name}"
        content = bytearray(client.get_object(Bucket="faults", Key=older)["Body"].read())
    if damage == "missing":
        client.delete_object(Bucket="faults", Key=key)
    else:
        client.put_object(Bucket="faults", Key=key, Body=bytes(content))
    assert load(tmp_path, client, prefix) == 1


def test_no_good_object_left_is_a_clear_error(tmp_path, client):
    prefix = "none"
    name = save(tmp_path, client, prefix, 1).name
    client.put_object(Bucket="faults", Key=f"{prefix}/{name}/weights.bin", Body=b"short")
    with pytest.raises(CheckpointFailed, match=r"no checkpoint can be trusted.*in S3 differs"):
        load(tmp_path, client, prefix)
