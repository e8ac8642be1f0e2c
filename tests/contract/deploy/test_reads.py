"""People's commands that only look: the calls that they make to AWS, on the local cloud."""

from __future__ import annotations

import pytest

from tests.contract.deploy.conftest import LEAVES_A_CLOUD
from toolkit import cli
from toolkit.deploy import names
from toolkit.deploy.pricing import SNAPSHOT_KEY
from toolkit.deploy.session import Clients
from toolkit.deploy.storage import Bucket

pytestmark = LEAVES_A_CLOUD
READS = (
    ("plan",),
    ("deploy", "--dry-run"),
    ("apply", "--dry-run"),
    ("preflight",),
    ("status",),
    ("nodes",),
    ("jobs",),
    ("why", "gpu-001"),
    ("report", "--since", "1h"),
    ("reconcile", "--plan"),
    ("accounts", "plan"),
    ("accounts", "apply", "--dry-run"),
    ("budget", "status"),
    ("image", "list"),
    ("image", "check"),
    ("image", "build", "--dry-run"),
    ("destroy", "--dry-run"),
)
READ_VERBS = ("Describe", "Get", "Head", "List")
# CloudFormation compares the stack with the template, and the change set is deleted again.
COMPARISON = {"CreateChangeSet", "DeleteChangeSet"}


@pytest.fixture
def calls(config, monkeypatch):
    """The calls of people's commands: the name and parameters of each."""
    made, connect = [], Clients._connect

    def counted(clients, service, region):
        client = connect(clients, service, region)
        if clients is not config.actor.clients:
            client.meta.events.register(
                "provide-client-params",
                lambda params, model, **_: made.append((model.name, dict(params))),
            )
        return client

    monkeypatch.setattr(Clients, "_connect", counted)
    return made


def changing(calls, config):
    """Return the names of the calls that change something."""
    return sorted(
        name
        for name, params in calls
        if not name.startswith(READ_VERBS)
        and not params.get("DryRun")
        and params.get("DocumentName") != names.read_document(config.config)
    )


def toolkit(config, *words):
    return cli.run([*words, "--config", str(config.path)])


@pytest.fixture
def bucket(config):
    clients = config.actor.clients
    return Bucket(clients.client("s3"), names.bucket(config.config, clients.account))


def test_commands_that_look_at_a_cluster_change_nothing_in_aws(config, calls, bucket, capsys):
    """Look without a price snapshot, which deploy and apply keep."""
    assert toolkit(config, "deploy") == 0, capsys.readouterr().err
    assert "PutObject" in changing(calls, config), "the count sees what deploy changes"
    bucket.delete(SNAPSHOT_KEY)
    for words in READS:
        calls.clear()
        assert toolkit(config, *words) in (0, 1, 2), (words, capsys.readouterr().err)
        assert calls, words
        assert set(changing(calls, config)) <= COMPARISON, words
        assert bucket.read(SNAPSHOT_KEY) is None, words
    assert toolkit(config, "apply") == 0
    assert bucket.read(SNAPSHOT_KEY) is not None


def test_a_plan_of_a_first_deploy_makes_not_even_a_change_set(config, calls, capsys):
    """Find no changing call.

    A change set for a new stack would make an empty stack.
    """
    for words in (("plan",), ("deploy", "--dry-run")):
        assert toolkit(config, *words) in (0, 2), (words, capsys.readouterr().err)
        assert changing(calls, config) == [], words
