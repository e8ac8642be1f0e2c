"""People with the policies of examples/iam on the local cloud, which judges every call."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest
from botocore.exceptions import ClientError

from tests.contract.deploy.conftest import LEAVES_A_CLOUD
from toolkit import cli
from toolkit.config import load
from toolkit.config.model import Access
from toolkit.deploy import names
from toolkit.deploy.head import find_head
from toolkit.deploy.pricing import SNAPSHOT_KEY
from toolkit.deploy.session import Clients
from toolkit.deploy.storage import Bucket

pytestmark = LEAVES_A_CLOUD
EXAMPLES = Path(__file__).parents[3] / "examples" / "iam"
SCRIPT = Path(__file__).parents[3] / "jobscripts" / "smoke.sbatch"
DENIED = 4
numbers = itertools.count(1)


class Person:
    """A person who signs with a role of one policy's rights."""

    def __init__(self, config, policy) -> None:
        name = f"{policy}-{next(numbers)}"
        self.name, self.config = name, config
        owner = config.actor.clients
        iam = owner._session.client("iam", endpoint_url=config.config.aws.endpoint_url)
        trust = {"Version": "2012-10-17", "Statement": []}
        iam.create_role(RoleName=name, AssumeRolePolicyDocument=json.dumps(trust))
        text = (EXAMPLES / f"{policy}.json").read_text()
        text = text.replace("research", config.config.cluster)
        iam.put_role_policy(RoleName=name, PolicyName="own", PolicyDocument=text)
        given = owner.client("sts").assume_role(
            RoleArn=f"arn:aws:iam::{owner.account}:role/{name}", RoleSessionName=name
        )["Credentials"]
        self.file = config.path.with_name(f"{name}-credentials")
        self.file.write_text(
            f"[local]\naws_access_key_id = {given['AccessKeyId']}\n"
            f"aws_secret_access_key = {given['SecretAccessKey']}\n"
            f"aws_session_token = {given['SessionToken']}\n"
        )
        self.path = config.path.with_name(f"{name}.yaml")
        own = str(config.config.aws.credentials_file)
        self.path.write_text(config.path.read_text().replace(own, str(self.file)))

    def client(self, service):
        return Clients(load(self.path)).client(service)

    def toolkit(self, *words):
        at = 2 if words[0] in {"accounts", "budget", "usage"} else 1  # a group and its command
        return cli.run([*words[:at], "--config", str(self.path), *words[at:]])

    def done(self, *words):
        """Run a command that must reach AWS; return its exit code."""
        before = self.allowed_count()
        code = self.toolkit(*words)
        assert self.allowed_count() > before, words
        return code

    def allowed_count(self):
        return sum(call["count"] for call in self.calls() if call["allowed"])

    def denied(self):
        """Return the actions that were refused to this person."""
        return {call["action"] for call in self.calls() if not call["allowed"]}

    def calls(self):
        """Return the counted calls of this person, as IAM judged them."""
        calls = self.config.actor.cloud.record.to_json()["calls"]
        return [call for call in calls if call["role"] == self.name]


READS = (
    ("status",),
    ("nodes", "--json"),
    ("jobs", "--json"),
    ("why", "gpu-001"),
    ("report", "--since", "1h", "--json"),
    ("accounts", "plan"),
    ("budget", "status"),
    ("budget", "plan"),
    ("savings", "--json"),
    ("quote", str(SCRIPT), "--json"),
)


def test_a_reader_looks_at_everything_and_is_denied_nothing(shared_cluster, capsys):
    reader = Person(shared_cluster, "reader")
    for words in READS:
        assert reader.done(*words) == 0, (words, capsys.readouterr().err)
    assert reader.denied() == set()


def test_a_reader_changes_nothing_and_runs_nothing_else(shared_cluster, capsys):
    """Refuse a shell, a set-up, a deploy and a destroy."""
    reader = Person(shared_cluster, "reader")
    before = find_head(shared_cluster.actor.clients, shared_cluster.config)
    shared_cluster.actor.driver.ran.clear()
    for words in (
        ("run", "--", "id"),
        ("apply", "--force"),
        ("deploy", "--yes"),
        ("destroy", "--yes"),
    ):
        assert reader.toolkit(*words) == DENIED, words
        assert "not authorized" in capsys.readouterr().err
    assert find_head(shared_cluster.actor.clients, shared_cluster.config) == before
    assert "ssm:SendCommand" in reader.denied()
    assert not [text for text in shared_cluster.actor.driver.ran if text.startswith("id")]


def test_an_operator_applies_settings_and_deploys_and_destroys_nothing(shared_cluster, capsys):
    """Apply also without a price snapshot, which is then written again."""
    operator = Person(shared_cluster, "operator")
    clients = shared_cluster.actor.clients
    Bucket(clients.client("s3"), names.bucket(shared_cluster.config, clients.account)).delete(
        SNAPSHOT_KEY
    )
    for words in (*READS, ("run", "--", "id"), ("apply", "--force")):
        assert operator.done(*words) == 0, (words, capsys.readouterr().err)
    assert operator.denied() == set()
    capsys.readouterr()
    for words in (("deploy", "--yes"), ("destroy", "--yes")):
        assert operator.toolkit(*words) == DENIED, words
        assert "not authorized" in capsys.readouterr().err


SESSIONS = (
    Access().login,
    Access().login_as,
    Access().ssh_proxy,
    (*Access().login, "--document-name", "AWS-StartPortForwardingSession"),  # to MLflow's page
)


def documents(cluster):
    """Return the document of each session, for a session with one."""
    for words in SESSIONS:
        at = words.index("--document-name") + 1 if "--document-name" in words else 0
        yield {"DocumentName": words[at].format(cluster=cluster)} if at else {}


def test_who_runs_the_cluster_starts_every_session_of_toolkit_login_and_a_reader_none(
    shared_cluster,
):
    """Get past the judge to the local cloud, which opens no session."""
    head = find_head(shared_cluster.actor.clients, shared_cluster.config)["InstanceId"]
    for name, answer in (
        ("operator", "TargetNotConnected"),
        ("admin", "TargetNotConnected"),
        ("reader", "not authorized"),
    ):
        ssm = Person(shared_cluster, name).client("ssm")
        for document in documents(shared_cluster.config.cluster):
            with pytest.raises(ClientError, match=answer):
                ssm.start_session(Target=head, **document)
