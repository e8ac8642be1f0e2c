"""The programs' secrets, absent from all that they write and send.

Failing calls and files are included.
"""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING

import pytest

from slurmplugins.model import hostlist
from slurmplugins.system.log_events import LogEvent
from tests.contract.engine import simulated_cluster

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.contract.engine.simulated_cluster import SimulatedCluster

SECRET = "PlantedSecretValueThatNobodyMaySee0123456789"
G = hostlist.expand("gpu-[001-008]")
EVERYWHERE = {
    "AWS_SECRET_ACCESS_KEY": SECRET,
    "AWS_SESSION_TOKEN": f"session{SECRET}",
    "SLURM_JWT": f"jwt{SECRET}",
}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[SimulatedCluster]:
    with simulated_cluster.running_cluster(tmp_path) as found:
        found.environment = dict(EVERYWHERE)
        yield found


def said(cluster: SimulatedCluster) -> Iterator[tuple[str, str]]:
    """Yield all output of the programs: its place, and the text."""
    for place in ("state", "logs", "shared", "stderr"):
        root = cluster.folder / place
        for path in [root] if root.is_file() else sorted(root.rglob("*")):
            if path.is_file():
                yield str(path), path.read_bytes().decode(errors="replace")
    for call in cluster.ec2.asked:
        yield f"request {call.action}", repr(call.params)
    tags = cluster.local.client("ec2").describe_tags()["Tags"]
    yield "tags", json.dumps(tags)
    yield "command lines", "\n".join(cluster.controller.asked)
    yield "node reasons", repr([item.reason for item in cluster.slurm.state.values()])
    yield "AdminComments", repr([item.comment for item in cluster.slurm.queue.values()])
    store = cluster.local.client("s3")
    for item in store.list_objects_v2(Bucket="demo-bucket").get("Contents", ()):
        body = store.get_object(Bucket="demo-bucket", Key=item["Key"])["Body"].read()
        yield f"ledger {item['Key']}", body.decode()


def assert_unseen(cluster: SimulatedCluster, *, asked: bool = True) -> None:
    """Fail where the secret is in any output.

    With `asked`, some request must have reached EC2, and without it none.
    """
    hidden = [base64.b64encode(b"." * shift + SECRET.encode()).decode()[4:-4] for shift in range(3)]
    places = dict(said(cluster))
    assert any("request" in place for place in places) == asked
    assert any(place.endswith(".log") and text for place, text in places.items())
    found = [place for place, text in places.items() for word in (SECRET, *hidden) if word in text]
    assert found == []


def test_a_secret_is_in_nothing_that_a_working_cluster_leaves(cluster: SimulatedCluster):
    cluster.slurm.start(7, G[:2])
    assert cluster.resume() == 0
    cluster.boot()
    assert len(cluster.live()) == 2
    assert cluster.reconcile() == 0
    cluster.slurm.finish(7)
    cluster.slurm.power_down(G[:2])
    cluster.skip(1)
    assert cluster.suspend() == 0
    assert cluster.reconcile() == 0
    assert_unseen(cluster)


@pytest.mark.parametrize(
    "reply",
    [
        simulated_cluster.Reply.refusal("AuthFailure", "the credentials can't be validated"),
        simulated_cluster.Reply.refusal(
            "UnauthorizedOperation", "Encoded authorization failure: x", 403
        ),
        simulated_cluster.Reply(200, b"<RunInstancesResponse><reserv"),
        simulated_cluster.Reply(500, b"oops"),
    ],
)
def test_a_secret_is_in_nothing_that_is_told_of_a_failing_call(
    cluster: SimulatedCluster, reply: simulated_cluster.Reply
):
    for action in ("RunInstances", "DescribeInstances", "DescribeInstanceStatus"):
        cluster.ec2.lie(action, reply)
    cluster.slurm.start(7, G[:2])
    cluster.resume()
    assert cluster.reconcile() == 1
    assert any(
        item["event"] == LogEvent.PROGRAM_FAILED and item["trace"]
        for item in cluster.log("reconcile")
    )
    assert_unseen(cluster)


def test_a_secret_is_in_no_output_if_no_header_can_carry_the_session_token(
    cluster: SimulatedCluster,
):
    """Put a newline into the session token.

    A copied value may have one. Python's own error about such a header quotes the whole value.
    """
    cluster.environment = {**EVERYWHERE, "AWS_SESSION_TOKEN": f"first\n{SECRET}"}
    cluster.slurm.start(7, G[:2])
    cluster.resume()
    assert cluster.reconcile() == 1
    failures = [
        item for item in cluster.log("reconcile") if item["event"] == LogEvent.PROGRAM_FAILED
    ]
    assert [("session token" in item["error"], bool(item["trace"])) for item in failures] == [
        (True, True)
    ]
    assert_unseen(cluster, asked=False)


def test_a_secret_is_in_nothing_that_is_told_of_a_credentials_file_that_is_damaged(
    cluster: SimulatedCluster,
):
    """Leave the equals sign out of a line of the credentials file.

    botocore keeps the line out of its error, and this holds botocore to that.
    """
    path = cluster.folder / "credentials"
    path.write_text(f"[default]\naws_access_key_id = AKIA\naws_secret_access_key {SECRET}\n")
    cluster.environment = {
        "AWS_ACCESS_KEY_ID": "",
        "AWS_SECRET_ACCESS_KEY": "",
        "AWS_SHARED_CREDENTIALS_FILE": str(path),
    }
    cluster.slurm.start(7, G[:2])
    cluster.resume()
    assert cluster.reconcile() == 1
    assert_unseen(cluster, asked=False)
    assert cluster.live() == []
