"""A secret that the programs have is in nothing that they write, send or say, whatever fails."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING

import pytest

from slurmplugins.model import hostlist
from slurmplugins.system.log_events import LogEvent
from tests.contract.engine import world as worlds

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.contract.engine.world import World

SECRET = "PlantedSecretValueThatNobodyMaySee0123456789"
G = hostlist.expand("gpu-[001-008]")
EVERYWHERE = {
    "AWS_SECRET_ACCESS_KEY": SECRET,
    "AWS_SESSION_TOKEN": f"session{SECRET}",
    "SLURM_JWT": f"jwt{SECRET}",
}


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with worlds.opened(tmp_path) as found:
        found.environment = dict(EVERYWHERE)
        yield found


def said(world: World) -> Iterator[tuple[str, str]]:
    """Everything that came out of the programs: where, and the text."""
    for place in ("state", "logs", "shared", "stderr"):
        root = world.folder / place
        for path in [root] if root.is_file() else sorted(root.rglob("*")):
            if path.is_file():
                yield str(path), path.read_bytes().decode(errors="replace")
    for call in world.ec2.asked:
        yield f"request {call.action}", repr(call.params)
    tags = world.local.client("ec2").describe_tags()["Tags"]
    yield "tags", json.dumps(tags)
    yield "command lines", "\n".join(world.controller.asked)
    yield "node reasons", repr([item.reason for item in world.slurm.state.values()])
    yield "AdminComments", repr([item.comment for item in world.slurm.queue.values()])
    store = world.local.client("s3")
    for item in store.list_objects_v2(Bucket="demo-bucket").get("Contents", ()):
        body = store.get_object(Bucket="demo-bucket", Key=item["Key"])["Body"].read()
        yield f"ledger {item['Key']}", body.decode()


def assert_unseen(world: World) -> None:
    hidden = [base64.b64encode(b"." * shift + SECRET.encode()).decode()[4:-4] for shift in range(3)]
    places = dict(said(world))
    assert any("request" in place for place in places)
    assert any(place.endswith(".log") and text for place, text in places.items())
    found = [place for place, text in places.items() for word in (SECRET, *hidden) if word in text]
    assert found == []


def test_a_secret_is_in_nothing_that_a_working_cluster_leaves(world: World):
    world.slurm.start(7, G[:2])
    assert world.resume() == 0
    world.boot()
    assert len(world.live()) == 2
    assert world.reconcile() == 0
    world.slurm.finish(7)
    world.slurm.power_down(G[:2])
    world.skip(1)
    assert world.suspend() == 0
    assert world.reconcile() == 0
    assert_unseen(world)


@pytest.mark.parametrize(
    "reply",
    [
        worlds.Reply.refusal("AuthFailure", "the credentials can't be validated"),
        worlds.Reply.refusal("UnauthorizedOperation", "Encoded authorization failure: x", 403),
        worlds.Reply(200, b"<RunInstancesResponse><reserv"),
        worlds.Reply(500, b"oops"),
    ],
)
def test_a_secret_is_in_nothing_that_is_told_of_a_failing_call(world: World, reply: worlds.Reply):
    for action in ("RunInstances", "DescribeInstances", "DescribeInstanceStatus"):
        world.ec2.lie(action, reply)
    world.slurm.start(7, G[:2])
    world.resume()
    assert world.reconcile() == 1
    assert any(
        item["event"] == LogEvent.PROGRAM_FAILED and item["trace"]
        for item in world.log("reconcile")
    )
    assert_unseen(world)


def test_a_secret_is_in_nothing_that_is_told_of_a_credentials_file_that_is_damaged(world: World):
    """Python's own message about such a file quotes the line."""
    path = world.folder / "credentials"
    path.write_text(f"[default]\naws_access_key_id = AKIA\naws_secret_access_key {SECRET}\n")
    world.environment = {
        "AWS_ACCESS_KEY_ID": "",
        "AWS_SECRET_ACCESS_KEY": "",
        "AWS_SHARED_CREDENTIALS_FILE": str(path),
    }
    world.slurm.start(7, G[:2])
    world.resume()
    assert world.reconcile() == 1
    places = dict(said(world))
    assert [place for place, text in places.items() if SECRET in text] == []
    assert world.live() == []
