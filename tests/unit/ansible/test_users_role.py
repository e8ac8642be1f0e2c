"""The role users: the order in which the head's accounts are made."""

from pathlib import Path

import pytest
from ruamel.yaml import YAML

TASKS = Path(__file__).parents[3] / "ansible/roles/users/tasks"


def steps(name):
    """Return a file's steps in order, with those of its imports."""
    found = []
    for step in YAML(typ="safe").load((TASKS / name).read_text(encoding="utf-8")):
        imported = step.get("ansible.builtin.import_tasks")
        found.extend(steps(imported) if imported else [step])
    return found


@pytest.mark.parametrize("name", ["install.yml", "configure.yml"])
def test_the_agents_account_has_a_uid_of_the_system_before_any_other_account(name):
    """Make ssm-user in the image, or on an older head.

    The SSM agent would make it at the first session, with the next free uid of users.
    """
    first = steps(name)[0]
    assert first["ansible.builtin.user"]["name"] == "ssm-user"
    assert first["ansible.builtin.user"]["system"] is True
    assert "when" not in first
