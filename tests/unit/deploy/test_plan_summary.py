"""The last line of a plan says what deploy would do."""

import pytest

from toolkit.deploy.cluster import DeployPreview
from toolkit.deploy.head_change import NewHead
from toolkit.deploy.login_nodes import LoginInstance
from toolkit.deploy.plan_summary import NOTHING, deploy_sentence
from toolkit.deploy.stack_plan import ResourceChange, StackPlan

HEAD = ResourceChange("Replace", "Head", "AWS::EC2::Instance")
ROLE = ResourceChange("Modify", "HeadRole", "AWS::IAM::Role")


def plan(*changes, creates=False):
    return StackPlan("toolkit-demo", creates, changes, "arn" if changes else "")


@pytest.mark.parametrize(
    ("preview", "text"),
    [
        (DeployPreview(plan(), (), new_bundle=False), "change nothing"),
        (DeployPreview(plan(), ("a",), new_bundle=False), "build 1 image"),
        (
            DeployPreview(plan(ROLE), (), new_bundle=True),
            "change the stack (1 resource) and set up the head node",
        ),
        (
            DeployPreview(plan(ROLE, HEAD, creates=True), ("a", "b"), new_bundle=False),
            "build 2 images, create the stack (2 resources) and set up the head node",
        ),
    ],
)
def test_the_sentence_names_the_steps_of_deploy(preview, text):
    assert deploy_sentence(preview).startswith(f"`toolkit deploy` would {text}")


def test_a_replacement_is_named_with_the_option_that_it_needs():
    sentence = deploy_sentence(DeployPreview(plan(HEAD), (), new_bundle=False))
    assert sentence.endswith("only with --yes, since it would, or may, remove or replace Head")


def test_a_new_head_instance_is_named_with_the_option_that_it_needs():
    head = NewHead(("--replace-head was given",), loses_disk=True)
    sentence = deploy_sentence(DeployPreview(plan(), (), new_bundle=False, new_head=head))
    assert "replace the head node's instance and set up the head node" in sentence
    assert sentence.endswith("only with --yes, since it would, or may, remove or replace Head")


def test_a_login_node_that_was_terminated_is_replaced():
    lost = (LoginInstance("login-1", "i-1", ""),)
    preview = DeployPreview(plan(), (), new_bundle=False, lost_login_nodes=lost)
    assert deploy_sentence(preview) == "`toolkit deploy` would replace 1 login node"
    assert not preview.is_empty
    assert "Login1" in preview.text()
    assert "i-1 was terminated" in preview.text()


def test_an_empty_plan_has_the_sentence_for_nothing():
    assert deploy_sentence(DeployPreview(plan(), (), new_bundle=False)) == NOTHING
