"""The list of users that a node reads at its first boot."""

from __future__ import annotations

import json
import re

import pytest

from slurmplugins.errors import BootError
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
    passwd = f"{shells}zoe:x:2003:2003::/h:/usr/sbin/nologin\n"
    runner.answer("/usr/bin/getent", "passwd", stdout=passwd)
    shadow = "ada:!:20000:::::1:\ngrace:!:20000::::::\nzoe:!:20000:::::1:\n"
    runner.answer("/usr/bin/getent", "shadow", stdout=shadow)
    changed = users.set_locks(users.parse(json.dumps(rows)), runner)
    assert [(user.name, user.left) for user in changed] == [("ada", False), ("grace", True)]
    assert [argv[-1] for argv in runner.commands if "--shell" in argv] == ["ada", "grace"]


def test_a_node_whose_system_has_the_name_already_refuses_it():
    """Find an account of a package that the head lacks."""
    listed = users.parse('[{"name": "tss", "uid": 2001, "home": "/shared/home/tss"}]')
    runner = FakeRunner()
    runner.answer("/usr/bin/getent", "passwd", stdout="tss:x:105:109::/h:/usr/sbin/nologin\n")
    with pytest.raises(BootError, match="tss can't be a user: this instance has a user tss"):
        users.check_ids(listed, runner)
