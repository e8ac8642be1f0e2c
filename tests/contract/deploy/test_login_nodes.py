"""Login nodes through the local cloud's API: made, lost, made again, removed, destroyed."""

import json

import pytest

from tests.contract.deploy.conftest import LEAVES_A_CLOUD
from tests.contract.deploy.test_head_replacement import toolkit
from toolkit.commands.exit_codes import DIFFERS
from toolkit.config import parse
from toolkit.deploy import instances, login_nodes
from toolkit.errors import DeployError
from toolkit.local.options import ADMIN_KEY

pytestmark = LEAVES_A_CLOUD


@pytest.fixture
def deployed(config, capsys):
    """A deployed cluster with two login nodes."""
    config.edit("head: {instance_type", "login_nodes: {count: 2}\nhead: {instance_type")
    assert toolkit(config, "deploy") == 0, capsys.readouterr().err
    capsys.readouterr()
    return config


def found(config):
    return login_nodes.find(config.actor.clients, parse(config.path.read_text()))


def of_role_login(config):
    """Return the live instances with the tags of login nodes."""
    ec2 = config.actor.clients.client("ec2")
    own = {"toolkit:role": "login", "toolkit:cluster": "demo"}
    return [item["InstanceId"] for item in instances.find(ec2, own, instances.NOT_TERMINATING)]


def test_a_login_node_that_was_terminated_is_noticed_and_made_again(deployed, capsys):
    first, second = found(deployed)
    assert [first.state, second.state] == ["running", "running"]
    ec2 = deployed.actor.clients.client("ec2")
    ec2.terminate_instances(InstanceIds=[first.instance_id])
    assert toolkit(deployed, "status") == 1
    assert "login-1 has no instance: `toolkit deploy` makes one" in capsys.readouterr().out
    assert toolkit(deployed, "plan") == DIFFERS
    plan = capsys.readouterr().out
    assert f"± Login1  AWS::EC2::Instance  (a new instance: {first.instance_id}" in plan
    assert "would replace 1 login node" in plan
    assert toolkit(deployed, "deploy") == 0, capsys.readouterr().err
    new, same = found(deployed)
    assert (new.state, same) == ("running", second)
    assert new.instance_id != first.instance_id
    assert sorted(of_role_login(deployed)) == sorted([new.instance_id, same.instance_id])


def test_a_login_node_is_removed_only_with_yes(deployed, capsys):
    deployed.edit("login_nodes: {count: 2}", "login_nodes: {count: 1}")
    assert toolkit(deployed, "deploy") != 0
    assert "Login2" in capsys.readouterr().err
    assert len(of_role_login(deployed)) == 2
    assert toolkit(deployed, "deploy", "--yes") == 0
    assert of_role_login(deployed) == [found(deployed)[0].instance_id]


def test_destroy_takes_the_login_nodes(deployed, capsys):
    assert toolkit(deployed, "destroy", "--yes") == 0, capsys.readouterr().err
    assert of_role_login(deployed) == []


def test_status_lists_login_nodes_and_what_they_lack(deployed, capsys):
    assert toolkit(deployed, "status", "--json") == 0
    assert json.loads(capsys.readouterr().out)["login_nodes"] == {
        "login-1": "is up",
        "login-2": "is up",
    }
    deployed.actor.login_nodes_report = False
    deployed.actor.driver.login_nodes.clear()
    assert toolkit(deployed, "status") == 1
    assert "unhealthy: login-2 has not reported yet (i-" in capsys.readouterr().out


def test_an_instance_with_the_tags_of_a_login_node_gets_no_session(deployed):
    """Find login nodes in the stack: tags prove nothing."""
    ec2 = deployed.actor.clients.client("ec2")
    before = found(deployed)
    (subnet, *_) = ec2.describe_subnets()["Subnets"]
    image = ec2.describe_images(Owners=["self"])["Images"][0]["ImageId"]
    tags = {"toolkit:cluster": "demo", "toolkit:role": "login", "Name": "demo-login-1"}
    ec2.run_instances(
        ImageId=image,
        InstanceType="m7i.large",
        MinCount=1,
        MaxCount=1,
        SubnetId=subnet["SubnetId"],
        TagSpecifications=[
            {
                "ResourceType": "instance",
                "Tags": [{"Key": key, "Value": value} for key, value in tags.items()],
            }
        ],
    )
    assert len(of_role_login(deployed)) == 3
    assert found(deployed) == before


def test_login_goes_to_a_login_node_unless_the_head_is_asked_for(deployed, monkeypatch):
    started = []
    monkeypatch.setattr("os.execve", lambda _program, words, _environment: started.append(words))
    names = {item.instance_id for item in found(deployed)}
    toolkit(deployed, "login", "--as", "ada")
    toolkit(deployed, "login")
    assert {words[3] for words in started} <= names
    toolkit(deployed, "login", "--head")
    assert started[-1][3] not in names
    assert toolkit(deployed, "login", "--head", "--as", "ada") == DeployError("").exit_code
    assert len(started) == 3


def test_login_hands_on_the_credentials_that_cluster_yaml_names(deployed, monkeypatch):
    started = []
    monkeypatch.setattr("os.execve", lambda *arguments: started.append(arguments[2]))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAANOTHER")
    monkeypatch.setenv("AWS_DEFAULT_PROFILE", "another")
    toolkit(deployed, "login")
    (environment,) = started
    assert environment["AWS_ACCESS_KEY_ID"] == ADMIN_KEY
    assert environment["AWS_PROFILE"] == "local"
    assert "AWS_DEFAULT_PROFILE" not in environment
