"""`toolkit login`: the argv of each kind of session, and the lines for ssh."""

from __future__ import annotations

import pytest

from tests.unit.deploy.samples import example
from toolkit.commands import login
from toolkit.errors import DeployError


def test_login_as_names_the_document_and_the_user():
    config = example("aws")
    words = login.login_argv(config, "i-1", "ada")
    assert words[-4:] == ["--document-name", "toolkit-research-login", "--parameters", "user=ada"]
    assert "user=ada" not in login.login_argv(config, "i-1")


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
