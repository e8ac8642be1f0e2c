"""The head's list of users over time: who is new, who left, who came back."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from slurmplugins.config import paths
from slurmplugins.errors import BootError
from slurmplugins.head import set_users, user_list
from slurmplugins.head.set_users import HeadUsers
from slurmplugins.login_as import check_metadata, session_argv
from slurmplugins.node import users
from slurmplugins.system.imds_access import IPV4
from tests.fakes.runner import FakeRunner

if TYPE_CHECKING:
    from pathlib import Path

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHV"


def row(name: str, uid: int) -> dict[str, Any]:
    return {"name": name, "uid": uid, "gid": uid, "home": f"/shared/home/{name}"}


def accounts(*rows: dict[str, Any]) -> tuple[users.User, ...]:
    return users.parse(json.dumps(rows))


class Head:
    """A head node with files under a temporary root."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.runner = FakeRunner()
        for path in (root / "etc/ssh", root / "etc/slurm-toolkit", root / "shared/.toolkit"):
            path.mkdir(parents=True)

    def apply(self, *rows: dict[str, Any], **keys: list[str]) -> bool:
        head = HeadUsers(self.root / "shared", self.root, self.runner)
        text = json.dumps({"users": rows, "ssh_keys": keys})
        return head.apply(set_users.parse(text))

    def keys(self) -> dict[str, str]:
        folder = self.root / paths.SSH_KEYS.relative_to("/")
        return {path.name: path.read_text() for path in folder.iterdir()}

    def logins(self) -> list[str]:
        return (self.root / paths.LOGINS.relative_to("/")).read_text().split()

    def has_accounts(self, **shells: str) -> None:
        lines = (f"{name}:x:1:1::/home:{shell}" for name, shell in shells.items())
        self.runner.answer("/usr/bin/getent", stdout="\n".join(lines))

    def commands(self, program: str) -> list[list[str]]:
        return [argv for argv in self.runner.commands if argv[0].endswith(f"/{program}")]


@pytest.fixture
def head(tmp_path: Path) -> Head:
    return Head(tmp_path)


ADA, GRACE = row("ada", 2001), row("grace", 2002)


def test_keys_are_written_for_who_has_any_and_a_second_run_changes_nothing(head: Head):
    assert head.apply(ADA, GRACE, ada=[KEY, f"{KEY}2"])
    assert head.keys() == {"ada": f"{KEY}\n{KEY}2\n"}
    assert head.logins() == ["ada", "grace"]
    assert not head.apply(ADA, GRACE, ada=[KEY, f"{KEY}2"])


def test_who_leaves_loses_keys_login_account_and_processes(head: Head):
    head.apply(ADA, GRACE, ada=[KEY], grace=[f"{KEY}2"])
    head.has_accounts(ada="/bin/bash", grace="/bin/bash")
    assert head.apply(ADA, ada=[KEY])
    assert head.keys() == {"ada": f"{KEY}\n"}
    assert head.logins() == ["ada"]
    (locked,) = head.commands("usermod")
    assert locked[-1] == "grace"
    assert {"/usr/sbin/nologin", "--expiredate"} <= set(locked)
    assert [argv[-1] for argv in head.commands("pkill")] == ["2002"]


def test_sessions_end_only_when_no_new_one_can_open(head: Head):
    head.apply(ADA, GRACE, grace=[KEY])
    head.has_accounts(ada="/bin/bash", grace="/bin/bash")
    run = head.runner.run

    def checked(argv: list[str], *, timeout: float, stdin: str = "") -> Any:
        if argv[0].endswith("/pkill"):
            assert not head.keys()
            assert head.commands("usermod")
            assert head.logins() == ["ada"]
        return run(argv, timeout=timeout, stdin=stdin)

    head.runner.run = checked  # type: ignore[method-assign, assignment]
    head.apply(ADA)
    assert head.commands("pkill")


def test_who_comes_back_gets_shell_and_keys_again(head: Head):
    head.apply(ADA, GRACE)
    head.apply(ADA)
    head.has_accounts(ada="/bin/bash", grace="/usr/sbin/nologin")
    head.apply(ADA, GRACE, grace=[KEY])
    assert head.commands("usermod")[-1] == [
        *("/usr/sbin/usermod", "--expiredate", "", "--shell", "/bin/bash", "grace")
    ]
    assert head.logins() == ["ada", "grace"]


def test_a_uid_is_never_given_to_another_user():
    previous = user_list.merge(accounts(ADA, GRACE), accounts(ADA))
    with pytest.raises(BootError, match="uid 2002 is of grace, who left"):
        user_list.merge(previous, accounts(ADA, row("bob", 2002)))
    with pytest.raises(BootError, match="set 2002 again instead of 2003"):
        user_list.merge(previous, accounts(ADA, row("grace", 2003)))


def test_who_left_stays_in_the_list_for_ever():
    users_now = accounts(ADA, GRACE)
    for _ in range(3):
        users_now = user_list.merge(users_now, accounts(ADA))
        users_now = users.parse(json.dumps(user_list.to_json(users_now)))
    assert [(user.name, user.left) for user in users_now] == [("ada", False), ("grace", True)]
    assert 'u grace 2002:2002 "Cluster user" /shared/home/grace /usr/sbin/nologin' in (
        user_list.sysusers(users_now)
    )


def test_a_run_that_fails_halfway_still_knows_who_was_there(head: Head):
    head.apply(ADA, GRACE)
    head.runner.answer("/usr/bin/pkill", returncode=3, stderr="no")
    for _ in range(2):
        with pytest.raises(BootError, match="pkill failed: no"):
            head.apply(ADA)


@pytest.mark.parametrize(
    "line", [f'command="x" {KEY}', f"{KEY}\n{KEY}", f"{KEY} comment", "", "ssh-rsa", 7]
)
def test_a_key_with_more_than_type_and_base64_is_not_written(head: Head, line: object):
    with pytest.raises(BootError):
        head.apply(ADA, ada=[line])  # type: ignore[list-item]


@pytest.mark.parametrize("name", ["root", "grace", "", "ada\ngrace", "ad", "../ada"])
def test_a_session_is_refused_to_who_is_not_in_the_list(tmp_path: Path, name: str):
    logins = tmp_path / "logins"
    logins.write_text("ada\n")
    with pytest.raises(SystemExit, match="none of the cluster's users"):
        session_argv([name], logins, on_terminal=True)
    with pytest.raises(SystemExit, match="none of the cluster's users"):
        session_argv(["ada"], tmp_path / "missing", on_terminal=True)


def test_a_session_on_a_terminal_has_a_terminal_of_its_own(tmp_path: Path):
    logins = tmp_path / "logins"
    logins.write_text("ada\n")
    shell = ["/usr/sbin/runuser", "--pty", "--login", "ada"]
    assert session_argv(["ada"], logins, on_terminal=True) == shell
    words = session_argv(["ada", "sbatch", "$(id)"], logins, on_terminal=False)
    assert words[:4] == ["/usr/sbin/runuser", "--user", "ada", "--"]
    assert words[-2:] == ["sbatch", "$(id)"]


def test_nobody_gets_a_session_where_users_could_take_the_instances_role():
    check_metadata(2001, lambda _service, uid: uid == 2001)
    with pytest.raises(SystemExit, match=r"slurm-imds-access\.service"):
        check_metadata(2001, lambda service, _uid: service is not IPV4)
