"""The role imds_access, and the units that must not start without its rules."""

import re
from configparser import ConfigParser
from pathlib import Path

import pytest
from jinja2 import Environment, StrictUndefined
from ruamel.yaml import YAML

from slurmplugins.config import paths
from slurmplugins.imds_access import parse

ANSIBLE = Path(__file__).parents[3] / "ansible"
ROLE = ANSIBLE / "roles/imds_access"
UNIT = "slurm-imds-access.service"


def load_yaml(path):
    return YAML(typ="safe").load(path.read_text(encoding="utf-8"))


def render(text, variables):
    environment = Environment(undefined=StrictUndefined, trim_blocks=True)  # noqa: S701 - no HTML
    return environment.from_string(text).render(variables)


def settings(text):
    """Return a unit's settings; a repeated one is joined."""
    found: dict[str, str] = {}
    for name, value in re.findall(r"^([A-Z]\w+)=(.*)$", text, re.MULTILINE):
        found[name] = f"{found[name]} {value}" if name in found else value
    return found


def unit(**facts):
    """Return the role's unit, as an image or the head has it."""
    defaults = load_yaml(ROLE / "defaults/main.yml")
    variables = {"toolkit_root": "/opt/slurm-toolkit", "ansible_managed": "by Ansible", **facts}
    users = render(defaults["imds_access_users"], variables)
    variables["imds_access_users"] = load_list(users)
    variables["imds_access_command"] = render(defaults["imds_access_command"], variables)
    text = (ROLE / "templates/slurm-imds-access.service.j2").read_text(encoding="utf-8")
    return settings(render(text, variables))


def load_list(text):
    return YAML(typ="safe").load(text)


@pytest.mark.parametrize(
    ("facts", "users"),
    [({}, ["slurm"]), ({"image_kind": "head"}, ["slurm"]), ({"image_kind": "compute"}, [])],
    ids=["site", "head", "compute"],
)
def test_slurm_is_allowed_on_the_head_and_root_alone_on_compute_nodes(facts, users):
    found = unit(**facts)
    program, *arguments = found["ExecStart"].split()
    assert program == str(paths.BIN / "slurm-imds-access")
    assert (parse(arguments).allow, parse(arguments).check) == (users, False)
    assert found["ExecReload"] == found["ExecStart"]


def test_the_rules_are_made_at_every_boot_before_the_network_is_up():
    found = unit()
    assert (found["Type"], found["RemainAfterExit"]) == ("oneshot", "yes")
    assert found["DefaultDependencies"] == "no"
    assert "network-pre.target" in found["Before"].split()
    assert found["WantedBy"] == "sysinit.target"
    tasks = load_yaml(ROLE / "tasks/install.yml")
    assert tasks[-1]["ansible.builtin.systemd_service"]["enabled"] is True


def test_systemd_networkd_keeps_the_rules():
    """Configure it: it removes rules that it did not make."""
    parser = ConfigParser()
    parser.read_string((ROLE / "files/networkd.conf").read_text(encoding="utf-8"))
    assert parser["Network"]["ManageForeignRoutingPolicyRules"] == "no"
    written = [
        entry["dest"]
        for step in load_yaml(ROLE / "tasks/files.yml")
        for entry in step["write_files"]["files"]
        if "source" in entry
    ]
    assert written == ["/etc/systemd/networkd.conf.d/10-slurm-toolkit.conf"]


@pytest.mark.parametrize(
    "path",
    [
        "users/files/slurm-sshd.service",
        "mlflow/templates/mlflow.service.j2",
        "optuna/templates/optuna.service.j2",
    ],
)
def test_no_service_for_users_starts_on_the_head_without_the_rules(path):
    found = settings((ANSIBLE / "roles" / path).read_text(encoding="utf-8"))
    assert UNIT in found["Requires"].split()
    assert UNIT in found["After"].split()


def test_the_head_has_the_rules_before_it_has_users():
    roles = [role["role"] for role in load_yaml(ANSIBLE / "site.yml")[1]["roles"]]
    assert roles.index("imds_access") < roles.index("users")


def test_both_images_have_the_rules():
    for roles in load_yaml(ANSIBLE / "group_vars/all.yml")["toolkit_roles"].values():
        assert "imds_access" in roles
        assert roles.index("burst") < roles.index("imds_access"), "the program comes first"


def test_mlflow_has_the_credentials_of_its_own_role_and_optuna_none():
    server = (ANSIBLE / "roles/mlflow/templates/mlflow.service.j2").read_text(encoding="utf-8")
    assert "Environment=AWS_CONFIG_FILE={{ mlflow_aws_config }}" in server
    assert "Environment=AWS_EC2_METADATA_DISABLED=true" in server
    optuna = (ANSIBLE / "roles/optuna/templates/optuna.service.j2").read_text(encoding="utf-8")
    assert "AWS_" not in optuna


def test_the_timer_renews_mlflows_credentials_long_before_they_expire():
    timer = (ANSIBLE / "roles/mlflow/files/slurm-mlflow-credentials.timer").read_text()
    assert settings(timer)["OnUnitInactiveSec"] == "20min"
    assert settings(timer)["OnActiveSec"] == "0"
