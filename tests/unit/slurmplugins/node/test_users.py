"""The list of users that a node reads at its first boot."""

from __future__ import annotations

import json
import re

from slurmplugins.node import users
from tests.fakes.runner import FakeRunner
from toolkit.config.types import USER_NAME


def test_a_node_takes_the_longest_name_that_cluster_yaml_may_have():
    name = "a" * 32
    assert re.fullmatch(USER_NAME, name)
    user = {"name": name, "uid": 2001, "gid": 2001, "home": f"/shared/home/{name}"}
    text = json.dumps([{**user, "shell": "/bin/bash", "groups": []}])
    assert [user.name for user in users.parse(text)] == [name]


def test_a_node_locks_who_left_and_unlocks_who_came_back_once():
    rows = [
        {"name": name, "uid": uid, "home": f"/shared/home/{name}", "left": left}
        for name, uid, left in (("ada", 2001, False), ("grace", 2002, True), ("zoe", 2003, True))
    ]
    runner = FakeRunner()
    shells = "ada:x:2001:2001::/h:/usr/sbin/nologin\ngrace:x:2002:2002::/h:/bin/bash\n"
    runner.answer("/usr/bin/getent", stdout=f"{shells}zoe:x:2003:2003::/h:/usr/sbin/nologin\n")
    changed = users.set_locks(users.parse(json.dumps(rows)), runner)
    assert [(user.name, user.left) for user in changed] == [("ada", False), ("grace", True)]
    assert [argv[-1] for argv in runner.commands if "--shell" in argv] == ["ada", "grace"]
