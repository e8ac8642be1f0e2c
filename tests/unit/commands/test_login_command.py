"""`toolkit login`: the argv of each kind of session, and the lines for ssh."""

from __future__ import annotations

import pytest

from tests.unit.deploy.samples import example
from toolkit.commands import login
from toolkit.config.model import LoginNodes
from toolkit.errors import DeployError


def test_login_as_names_the_document_and_the_user():
    config = example("aws")
    words = login.login_argv(config, "i-1", "ada")
    assert words[-4:] == ["--document-name", "toolkit-research-login", "--parameters", "user=ada"]
    assert "user=ada" not in login.login_argv(config, "i-1")


OTHERS = {
    "AWS_ACCESS_KEY_ID": "A",
    "AWS_SESSION_TOKEN": "T",
    "AWS_SECURITY_TOKEN": "T",  # botocore takes it before the one above
    "AWS_CREDENTIAL_EXPIRATION": "2026-11-01T00:00:00Z",
    "AWS_DEFAULT_PROFILE": "other",
}
OURS = {"AWS_ACCESS_KEY_ID": "B", "AWS_SECRET_ACCESS_KEY": "C"}


@pytest.mark.parametrize(
    ("aws", "expected"),
    [
        ({}, OTHERS),
        ({"profile": "cloud"}, {**OURS, "AWS_PROFILE": "cloud"}),
        ({"credentials_file": "/keys"}, {**OURS, "AWS_SHARED_CREDENTIALS_FILE": "/keys"}),
        (
            {"profile": "cloud", "credentials_file": "/keys"},
            {**OURS, "AWS_PROFILE": "cloud", "AWS_SHARED_CREDENTIALS_FILE": "/keys"},
        ),
    ],
)
def test_the_session_has_the_credentials_that_cluster_yaml_names(aws, expected):
    config = example("aws")
    config = config.model_copy(update={"aws": config.aws.model_copy(update=aws)})
    environment = login.login_environment(config, {"HOME": "/root", **OTHERS}, OURS)
    assert environment == {"HOME": "/root", **expected}


def test_the_lines_for_ssh_name_the_instance_the_proxy_and_the_heads_key():
    config = example("aws")
    text = login.ssh_config_text(config, "i-1", "ssh-ed25519 AAAA research\n", "ada")
    assert "Host research\n    User ada\n    HostKeyAlias research-i-1\n" in text
    assert "ssm start-session --region us-east-1 --target i-1" in text
    assert text.count("portNumber=%p") == 1
    assert text.endswith("# research-i-1 ssh-ed25519 AAAA\n")


def test_a_name_that_is_no_user_is_refused_before_any_call():
    with pytest.raises(DeployError, match="no user 'root'"):
        login._check_user(example(), "root")


def test_with_login_nodes_no_user_logs_in_on_the_head():
    config = example().model_copy(update={"login_nodes": LoginNodes(count=1)})
    for user, ssh_config in (("ada", False), (None, True)):
        with pytest.raises(DeployError, match="no login on the head node"):
            login._check_head_is_open(config, user, ssh_config=ssh_config)
    login._check_head_is_open(config, None, ssh_config=False)
    login._check_head_is_open(example(), "ada", ssh_config=True)


def test_the_lines_for_ssh_name_the_login_node_that_may_be_replaced():
    config = example("aws").model_copy(update={"login_nodes": LoginNodes(count=1)})
    text = login.ssh_config_text(config, "i-1", "ssh-ed25519 AAAA login-1\n", "ada")
    assert "print it again when the login node was replaced" in text
