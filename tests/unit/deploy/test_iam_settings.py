"""Settings that the account asks of every role: a boundary, a path, names."""

import pytest
import yaml

from tests.unit.deploy.samples import ACCOUNT, FACTS, example
from toolkit.config.iam import MAX_ROLE_NAME, Iam
from toolkit.config.training import Data
from toolkit.deploy.stack import images_template, stack_template

BOUNDARY = f"arn:aws:iam::{ACCOUNT}:policy/limits"
ASKED = Iam(permissions_boundary=BOUNDARY, path="/clusters/", name_prefix="hpc-")


class Loader(yaml.CSafeLoader):
    """A YAML loader with tags such as !Sub as text."""


Loader.add_multi_constructor("!", lambda loader, _, node: node.value)


@pytest.fixture
def templates():
    """Return the resources of both stacks for some settings."""

    def render(iam):
        config = example("aws").model_copy(update={"iam": iam, "data": Data(store="bucket")})
        texts = (stack_template(config, FACTS), images_template(config, ACCOUNT))
        loaded = [yaml.load(text, Loader)["Resources"] for text in texts]  # noqa: S506 - a safe loader
        return {**loaded[0], **loaded[1]}

    return render


def of_type(resources, kind):
    return {name: item["Properties"] for name, item in resources.items() if item["Type"] == kind}


def test_every_role_of_both_stacks_has_the_boundary_the_path_and_a_name(templates):
    roles = of_type(templates(ASKED), "AWS::IAM::Role")
    assert set(roles) == {"HeadRole", "MlflowRole", "ComputeRole", "JobRole", "BuilderRole"}
    for role in roles.values():
        assert role["PermissionsBoundary"] == BOUNDARY
        assert role["Path"] == "/clusters/"
    assert {role["RoleName"] for role in roles.values()} == {
        "hpc-research-us-east-1-head",
        "hpc-research-us-east-1-mlflow",
        "hpc-research-us-east-1-compute",
        "hpc-research-us-east-1-jobs",
        "hpc-toolkit-images-us-east-1-builder",
    }


def test_instance_profiles_have_the_path_and_a_name_and_take_no_boundary(templates):
    profiles = of_type(templates(ASKED), "AWS::IAM::InstanceProfile")
    assert set(profiles) == {"HeadProfile", "ComputeProfile", "BuilderProfile"}
    for profile in profiles.values():
        assert profile["Path"] == "/clusters/"
        assert profile["InstanceProfileName"].startswith("hpc-")
        assert "PermissionsBoundary" not in profile


def test_nothing_is_asked_by_default(templates):
    """Leave names to CloudFormation, which can then replace a role."""
    for kind in ("AWS::IAM::Role", "AWS::IAM::InstanceProfile"):
        for properties in of_type(templates(Iam()), kind).values():
            asked = {"Path", "PermissionsBoundary", "RoleName", "InstanceProfileName"}
            assert not asked & set(properties)


def test_the_longest_prefix_leaves_room_for_the_builders_role(templates):
    """Keep IAM's limit in the region with the longest name."""
    asked = Iam(name_prefix="p" * 24)
    builder = of_type(templates(asked), "AWS::IAM::Role")["BuilderRole"]["RoleName"]
    longest = builder.replace("us-east-1", "ap-southeast-1")
    assert len(longest) <= MAX_ROLE_NAME
