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
from tests.fakes.clock import FakeClock
from tests.fakes.runner import FakeRunner

if TYPE_CHECKING:
    from pathlib import Path

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHV"
UIDS = {"ada": 2001, "grace": 2002, "root": 0, "slurm": 64030}


def row(name: str, uid: int) -> dict[str, Any]:
    return {"name": name, "uid": uid, "gid": uid, "home": f"/shared/home/{name}"}


def accounts(*rows: dict[str, Any]) -> tuple[users.User, ...]:
    return users.parse(json.dumps(rows))


class Head:
    """A head node with files under a temporary root."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.runner = FakeRunner()
        self.clock = FakeClock()
        self.has_processes(none=True)
        for path in (root / "etc/ssh", root / "etc/slurm-toolkit", root / "shared/.toolkit"):
            path.mkdir(parents=True)

    def apply(self, *rows: dict[str, Any], login_nodes: bool = False, **keys: list[str]) -> bool:
        head = HeadUsers(self.root / "shared", self.root, self.runner, self.clock)
        text = json.dumps({"users": rows, "ssh_keys": keys, "login_nodes": login_nodes})
        return head.apply(set_users.parse(text))

    def keys(self) -> dict[str, str]:
        folder = self.root / paths.SSH_KEYS.relative_to("/")
        return {path.name: path.read_text() for path in folder.iterdir()}

    def logins(self) -> list[str]:
        return (self.root / paths.LOGINS.relative_to("/")).read_text().split()

    def has_accounts(self, **shells: str) -> None:
        """Answer getent for these names, with the ids of the list."""
        passwd = [f"{name}:x:{UIDS[name]}:{UIDS[name]}::/h:{sh}" for name, sh in shells.items()]
        locked = [name for name, shell in shells.items() if shell == users.NO_SHELL]
        shadow = [f"{name}:!:20000:::::{'1' if name in locked else ''}:" for name in shells]
        group = [f"{name}:x:{UIDS[name]}:" for name in shells]
        for database, lines in (("passwd", passwd), ("shadow", shadow), ("group", group)):
            self.runner.answer("/usr/bin/getent", database, stdout="\n".join(lines))

    def has_processes(self, *, none: bool) -> None:
        self.runner.answer("/usr/bin/pkill", returncode=1 if none else 0)

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


def test_with_login_nodes_users_lose_their_login_on_the_head_and_get_it_there(head: Head):
    head.apply(ADA, GRACE, ada=[KEY])
    assert head.apply(ADA, GRACE, ada=[KEY], login_nodes=True)
    assert (head.keys(), head.logins()) == ({}, [])
    listed = users.parse(paths.users_file(head.root / "shared").read_text())
    assert [(user.name, user.ssh_keys) for user in listed] == [("ada", (KEY,)), ("grace", ())]
    assert not head.apply(ADA, GRACE, ada=[KEY], login_nodes=True)
    head.apply(ADA, GRACE, ada=[KEY])
    assert (head.keys(), head.logins()) == ({"ada": f"{KEY}\n"}, ["ada", "grace"])


def test_who_left_has_no_key_in_the_list(head: Head):
    head.apply(ADA, GRACE, grace=[KEY])
    head.apply(ADA)
    listed = users.parse(paths.users_file(head.root / "shared").read_text())
    assert [(user.name, user.ssh_keys) for user in listed] == [("ada", ()), ("grace", ())]


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


def test_who_left_is_locked_wholly_on_a_new_head_too(head: Head):
    """Systemd-sysusers makes the account without a shell, and sets no expiry date."""
    head.apply(ADA, GRACE)
    head.has_accounts(ada="/bin/bash", grace="/usr/sbin/nologin")
    head.runner.answer("/usr/bin/getent", "shadow", stdout="grace:!*:20000::::::\n")
    head.apply(ADA)
    assert head.commands("usermod")[-1][:3] == ["/usr/sbin/usermod", "--expiredate", "1"]


@pytest.mark.parametrize(("name", "shell"), [("slurm", "/usr/sbin/nologin"), ("root", "/bin/bash")])
def test_an_account_of_the_system_never_becomes_a_user(head: Head, name: str, shell: str):
    head.apply(ADA, ada=[KEY])
    head.has_accounts(**{name: shell})
    before = len(head.runner.calls)
    for rows in ((ADA, row(name, 2009)), (ADA, row("zoe", 2008), row(name, 2009))):
        with pytest.raises(BootError, match=f"{name} can't be a user"):
            head.apply(*rows, **{name: [KEY]})
    assert head.keys() == {"ada": f"{KEY}\n"}
    assert head.logins() == ["ada"]
    assert {argv[0] for argv in head.runner.commands[before:]} == {"/usr/bin/getent"}


def test_a_uid_or_group_of_another_account_is_refused(head: Head):
    head.runner.answer("/usr/bin/getent", "passwd", stdout="ubuntu:x:2001:2001::/h:/bin/bash\n")
    with pytest.raises(BootError, match="has a user ubuntu with it"):
        head.apply(ADA)
    head.runner.answer("/usr/bin/getent", "passwd")
    head.runner.answer("/usr/bin/getent", "group", stdout="ada:x:27:\n")
    with pytest.raises(BootError, match="has a group ada with id 27"):
        head.apply(ADA)
    assert not head.commands("systemd-sysusers")


def test_processes_that_fork_are_ended_until_none_is_left(head: Head):
    head.apply(ADA, GRACE)
    head.has_processes(none=False)
    sleep = head.clock.sleep

    def last_pass(seconds: float) -> None:
        sleep(seconds)
        head.has_processes(none=len(head.clock.slept) > 1)

    head.clock.sleep = last_pass  # type: ignore[method-assign]
    head.apply(ADA)
    assert len(head.commands("pkill")) == 3
    by_kernel = head.commands("setpriv")
    assert len(by_kernel) == 3
    assert by_kernel[0][-3:] == ["-KILL", "--", "-1"]
    assert by_kernel[0][1:5] == ["--reuid", "2002", "--regid", "2002"]


def test_processes_that_stay_are_an_error_at_each_apply(head: Head):
    head.apply(ADA, GRACE)
    head.has_processes(none=False)
    for _ in range(2):
        with pytest.raises(BootError, match="processes of grace, who left, do not end"):
            head.apply(ADA)


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
