"""An admin with the policy of examples/iam on the local cloud, which judges every call."""

from __future__ import annotations

from tests.contract.deploy.conftest import LEAVES_A_CLOUD
from tests.contract.deploy.test_people_rights import Person
from toolkit.deploy import names

pytestmark = LEAVES_A_CLOUD


def test_an_admin_deploys_and_destroys_and_is_denied_nothing(config, capsys):
    """Judge the CLI's own calls.

    CloudFormation's calls for a stack are not judged here.
    """
    admin = Person(config, "admin")
    for words in (("plan",), ("deploy",), ("status",), ("destroy", "--yes", "--images")):
        assert admin.toolkit(*words) in (0, 2), (words, capsys.readouterr().err)
    assert admin.denied() == set()
    stacks = config.actor.clients.client("cloudformation").describe_stacks()["Stacks"]
    assert names.stack(config.config) not in {stack["StackName"] for stack in stacks}
