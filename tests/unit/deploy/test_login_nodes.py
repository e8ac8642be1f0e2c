"""Login nodes: their part of the stack, and which of them a session goes to."""

import pytest

from slurmplugins.head.report import HeadReport
from slurmplugins.model.login_node import LoginNodeReport
from tests.unit.deploy.samples import FACTS, Clock, Report, example
from tests.unit.deploy.test_stack import of_type, parsed, resources
from toolkit.config.model import LoginNodes
from toolkit.deploy import login_nodes
from toolkit.deploy.ingress import ingress_rules
from toolkit.deploy.login_nodes import UP, LoginInstance, choose, lost, states
from toolkit.deploy.stack import TemplateFacts, stack_template
from toolkit.errors import StackMissing

FIRST = LoginInstance("login-1", "i-1", "running")
SECOND = LoginInstance("login-2", "i-2", "running")
GONE = LoginInstance("login-1", "i-0", "")
NOW = 1000.0


def with_login_nodes(count=1, name="local"):
    """Return an example with login nodes."""
    return example(name).model_copy(update={"login_nodes": LoginNodes(count=count)})


def facts(**changes):
    return TemplateFacts(
        FACTS.account, FACTS.head_image, FACTS.compute_image, FACTS.root_device, **changes
    )


@pytest.mark.parametrize("name", ["local", "aws"])
def test_without_login_nodes_the_stack_has_nothing_of_them(name):
    assert [item for item in resources(example(name)) if "Login" in item] == ["LoginDocument"]


@pytest.mark.parametrize("name", ["local", "aws"])
def test_each_login_node_is_an_instance_without_a_public_address(name):
    stack = resources(with_login_nodes(2, name))
    for logical_id in ("Login1", "Login2"):
        properties = stack[logical_id]["Properties"]
        assert properties["MetadataOptions"]["HttpTokens"] == "required"
        assert properties["MetadataOptions"]["HttpPutResponseHopLimit"] == 1
        assert properties["BlockDeviceMappings"][0]["Ebs"]["Encrypted"] is True
        assert properties["SecurityGroupIds"] == ["LoginGroup"]
        assert properties["IamInstanceProfile"] == "LoginProfile"
        tags = {tag["Key"]: tag["Value"] for tag in properties["Tags"]}
        assert tags["toolkit:role"] == tags["toolkit:pool"] == "login"


def test_the_role_of_login_nodes_has_sessions_and_the_key_alone():
    stack = resources(with_login_nodes())
    actions = {
        action
        for policy in stack["LoginRole"]["Properties"]["Policies"]
        for statement in policy["PolicyDocument"]["Statement"]
        for action in (
            statement["Action"] if isinstance(statement["Action"], list) else [statement["Action"]]
        )
    }
    assert {item for item in actions if not item.startswith(("ssm:Update", "ssmmessages:"))} == {
        "secretsmanager:GetSecretValue"
    }
    denied = str(of_type(stack, "AWS::S3::BucketPolicy"))
    assert "LoginRole.Arn" in denied, "nor may it write bundles by another policy"


def test_a_login_node_reaches_the_heads_public_services_and_storage_alone():
    rules = ingress_rules(login_nodes=True)
    reached = {(rule.to, rule.ports) for rule in rules if rule.source == "LoginGroup"}
    assert reached == {
        ("HeadGroup", (6817, 6817)),
        ("HeadGroup", (6819, 6819)),
        ("HeadGroup", (5000, 5000)),
        ("HeadGroup", (5100, 5100)),
        ("ComputeGroup", (6818, 6818)),
        ("StorageGroup", (988, 988)),
        ("StorageGroup", (1018, 1023)),
    }
    assert len({rule.id for rule in rules}) == len(rules)
    assert {rule.source for rule in rules if rule.to == "LoginGroup"} == {
        "HeadGroup",
        "ComputeGroup",
        "StorageGroup",
    }


def test_the_stack_between_two_instances_lacks_that_login_node_alone():
    config = with_login_nodes(2)
    text = stack_template(config, facts(without_login_nodes=frozenset({"login-1"})))
    assert "Login1" not in parsed(text)
    assert "Login2" in parsed(text)
    assert "Head" in parsed(text)


def test_a_user_comes_to_the_same_login_node_again():
    assert choose((FIRST, SECOND), "ada") == choose((FIRST, SECOND), "ada")
    both = {choose((FIRST, SECOND), user).name for user in ("ada", "grace", "zoe", "bob", "eve")}
    assert both == {"login-1", "login-2"}
    assert choose((GONE, SECOND), "ada") == SECOND


def test_without_a_running_login_node_the_next_step_is_named():
    with pytest.raises(StackMissing) as raised:
        choose((GONE,), "ada")
    assert "--head" in str(raised.value.next_step)


def test_a_login_node_whose_instance_is_gone_is_lost():
    assert lost({"Login1": {}, "Login2": {}}, (GONE, SECOND)) == (GONE,)
    assert lost({}, (GONE,)) == (), "the update itself makes it"
    assert lost({"Login1": {}}, (LoginInstance("login-1", "", ""),)) == ()


@pytest.mark.parametrize(
    ("instance", "report", "state"),
    [
        (FIRST, LoginNodeReport("login-1", "i-1", NOW - 20), UP),
        (FIRST, LoginNodeReport("login-1", "i-1", NOW - 120), "is silent for 120 s (i-1)"),
        (FIRST, LoginNodeReport("login-1", "i-0", NOW), "has not reported yet (i-1)"),
        (
            FIRST,
            LoginNodeReport("login-1", "i-1", NOW, problem="sackd is failed"),
            "does not work: sackd is failed",
        ),
        (
            GONE,
            LoginNodeReport("login-1", "i-0", NOW),
            "has no instance: `toolkit deploy` makes one",
        ),
        (LoginInstance("login-1", "i-1", "stopped"), None, "is stopped (i-1)"),
    ],
)
def test_the_state_of_a_login_node_is_its_instances_and_its_report(instance, report, state):
    answer = HeadReport(at=NOW, login_nodes=(report,) if report else ())
    assert states([instance], answer) == {"login-1": state}


def test_deploy_waits_until_login_nodes_are_up_and_then_no_longer(monkeypatch):
    clock, reporter = Clock(), Report()
    answers = iter(["has not reported yet (i-1)", "does not work: sackd is failed", UP])
    monkeypatch.setattr(login_nodes, "find", lambda *_: ())
    monkeypatch.setattr(login_nodes.head_facts, "fetch_report", lambda *_: None)
    monkeypatch.setattr(login_nodes, "states", lambda *_: {"login-1": next(answers)})
    login_nodes.wait_until_up(None, with_login_nodes(), reporter, sleep=clock.sleep, clock=clock)
    assert reporter.lines[-1] == "1 of 1 up"
    monkeypatch.setattr(login_nodes, "states", lambda *_: {"login-1": "is silent"})
    login_nodes.wait_until_up(None, with_login_nodes(), reporter, sleep=clock.sleep, clock=clock)
    assert reporter.lines[-1] == "0 of 1 up"
    login_nodes.wait_until_up(None, example(), reporter)
