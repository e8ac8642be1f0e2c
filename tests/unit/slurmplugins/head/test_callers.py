"""The caller that a uid is to MLflow and to Optuna's storage."""

import pwd

import pytest

from slurmplugins.head.callers import Caller, caller_of, parse_answer

ACCOUNTS = {0: "root", 64_030: "slurm", 64_031: "optuna", 2001: "ada"}


@pytest.fixture(autouse=True)
def accounts(monkeypatch):
    def getpwuid(uid):
        return pwd.struct_passwd((ACCOUNTS[uid], "x", uid, uid, "", "/", "/bin/sh"))

    monkeypatch.setattr(pwd, "getpwuid", getpwuid)


def identity(uid, *, is_on_head):
    return caller_of(uid, is_on_head=is_on_head, system_users={"slurm"})


@pytest.mark.parametrize("is_on_head", [True, False])
def test_a_user_of_the_cluster_is_herself_wherever_she_is(is_on_head):
    assert identity(2001, is_on_head=is_on_head) == Caller("ada", is_user=True)


def test_the_heads_own_program_is_the_system_and_a_nodes_is_not():
    assert identity(64_030, is_on_head=True) == Caller("slurm", is_user=False, is_system=True)
    assert identity(64_030, is_on_head=False) == Caller("slurm", is_user=False)


@pytest.mark.parametrize("uid", [0, 64_031, 3000])
def test_root_and_other_system_users_and_unknown_uids_are_nobody(uid):
    caller = identity(uid, is_on_head=True)
    assert not caller.is_user
    assert not caller.is_system


@pytest.mark.parametrize(
    ("line", "uid"),
    [
        ("40001, 5000 : USERID : OTHER : 2001\r\n", 2001),
        ("40001,5000:USERID:OTHER:2001", 2001),
        ("40001, 5000 : ERROR : NO-USER\r\n", None),
        ("40002, 5000 : USERID : OTHER : 2001\r\n", None),
        ("40001, 5000 : USERID : UNIX : ada\r\n", None),
        ("40001, 5000 : USERID : OTHER : ada\r\n", None),
        ("40001, 5000 : USERID : OTHER\r\n", None),
        ("", None),
    ],
)
def test_only_a_uid_for_the_ports_that_were_asked_is_believed(line, uid):
    assert parse_answer(line, 40_001, 5000) == uid
