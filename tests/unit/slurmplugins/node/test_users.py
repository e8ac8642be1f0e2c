"""The list of users that a node reads at its first boot."""

from __future__ import annotations

import json
import re

from slurmplugins.node import users
from toolkit.config.types import USER_NAME


def test_a_node_takes_the_longest_name_that_cluster_yaml_may_have():
    name = "a" * 32
    assert re.fullmatch(USER_NAME, name)
    user = {"name": name, "uid": 2001, "gid": 2001, "home": f"/shared/home/{name}"}
    text = json.dumps([{**user, "shell": "/bin/bash", "groups": []}])
    assert [user.name for user in users.parse(text)] == [name]
