"""The accounts of cluster.yaml compared with those of slurmdbd.

Declared accounts and users are added or changed. Others stay as they are.
"""

import pytest

from tests.fakes.sacctmgr import FakeSacctmgr, RefusedError
from toolkit.accounts import Account, AccountTree, Association, apply, plan, read
from toolkit.accounts.current import parse
from toolkit.head_runner import SlurmAnswerError


def book(accounts, members, defaults):
    return AccountTree(
        accounts={
            name: Account(name, parent, share, owned=True) for name, parent, share in accounts
        },
        associations=frozenset(Association(*member) for member in members),
        default_accounts=defaults,
    )


SMALL = book(
    [("vision", "root", 60), ("speech", "root", 40)],
    [("vision", "ada"), ("speech", "bob"), ("vision", "bob")],
    {"ada": "vision", "bob": "speech"},
)


def make(slurm, target, *, prune=False):
    account_plan = plan(target, read(slurm, "demo"), "demo", prune=prune)
    apply(slurm, account_plan, lambda change: None)
    return account_plan


def whats(changes):
    return [f"{change.verb} {change.description}" for change in changes]


def test_apply_creates_all_declared_accounts_and_a_second_apply_changes_nothing():
    slurm = FakeSacctmgr()
    assert whats(make(slurm, SMALL).changes) == [
        "add account speech under root, fairshare 40",
        "add account vision under root, fairshare 60",
        "add user ada to account vision",
        "add user bob to account speech",
        "add user bob to account vision",
    ]
    assert slurm.defaults == {"root": "root", "ada": "vision", "bob": "speech"}
    assert make(slurm, SMALL).changes == ()


def test_parent_accounts_are_created_before_their_children():
    target = book([("a", "b", 1), ("b", "c", 1), ("c", "root", 1)], [], {})
    assert [
        change.description.split()[1] for change in make(FakeSacctmgr(), target).changes
    ] == list("cba")


def test_a_changed_fairshare_parent_or_default_is_one_change_each():
    slurm = FakeSacctmgr()
    make(slurm, SMALL)
    target = book(
        [("vision", "root", 70), ("speech", "vision", 40)],
        [("vision", "ada"), ("speech", "bob"), ("vision", "bob")],
        {"ada": "vision", "bob": "vision"},
    )
    (share, parent, default) = make(slurm, target).changes
    assert share.argv[-2:] == ("set", "fairshare=70")
    assert parent.description == "account speech: parent root → vision"
    assert default.argv[-1] == "defaultaccount=vision"


def test_accounts_of_an_admin_are_kept_even_when_pruning():
    slurm = FakeSacctmgr()
    make(slurm, SMALL)
    slurm.accounts["handmade"] = {"parent": "root", "fairshare": "9", "organization": "x"}
    slurm.members["handmade", "carl"] = {}
    slurm.defaults["carl"] = "handmade"
    account_plan = make(slurm, SMALL, prune=True)
    assert account_plan.changes == ()
    assert account_plan.left_alone == ("account handmade", "user carl in account handmade")


def test_the_root_account_is_never_changed():
    slurm = FakeSacctmgr()
    make(slurm, book([], [], {}), prune=True)
    assert slurm.changes == []


def test_a_declared_account_of_an_admin_gets_its_fairshare_but_keeps_its_organization():
    slurm = FakeSacctmgr()
    slurm.accounts["vision"] = {"parent": "root", "fairshare": "9", "organization": "x"}
    make(slurm, SMALL)
    assert slurm.accounts["vision"] == {"parent": "root", "fairshare": "60", "organization": "x"}


def test_undeclared_accounts_are_removed_only_when_pruning():
    slurm = FakeSacctmgr()
    make(slurm, SMALL)
    smaller = book([("speech", "root", 40)], [("speech", "bob")], {"bob": "speech"})
    assert make(slurm, smaller).changes == ()
    assert whats(make(slurm, smaller, prune=True).changes) == [
        "remove user ada in account vision",
        "remove user bob in account vision",
        "remove account vision",
    ]


def test_apply_stops_at_a_refusal_and_the_next_run_completes_it():
    slurm = FakeSacctmgr()
    refuse = plan(SMALL, read(slurm, "demo"), "demo")
    slurm.accounts["vision"] = {"parent": "root", "fairshare": "60", "organization": "toolkit"}
    changes = []
    with pytest.raises(RefusedError):
        apply(slurm, refuse, changes.append)
    assert whats(changes) == ["add account speech under root, fairshare 40"]
    make(slurm, SMALL)
    assert make(slurm, SMALL).changes == ()


def test_a_circle_of_accounts_does_not_hang_the_plan():
    circle = book([("a", "b", 1), ("b", "a", 1)], [], {})
    assert len(plan(circle, AccountTree(), "demo").changes) == 2


def test_partition_associations_are_ignored_and_the_fairshare_parent_is_parsed():
    current = parse(
        "vision|toolkit\n",
        "root||||1\nroot|root|||1\nvision|||root|parent\nvision|ada|spot||5\n",
        "ada|vision\nroot|root\n",
    )
    assert current.associations == {Association("root", "root")}
    assert current.accounts["vision"].fairshare == 2**31 - 1


def test_malformed_sacctmgr_output_is_an_error():
    with pytest.raises(SlurmAnswerError):
        parse("vision\n", "", "")
