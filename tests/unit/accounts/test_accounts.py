"""cluster.yaml's accounts against slurmdbd's: what is declared is made so, the rest is left."""

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


def test_a_new_cluster_gets_everything_and_a_second_run_changes_nothing():
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


def test_parents_are_made_before_their_children_whatever_their_names():
    target = book([("a", "b", 1), ("b", "c", 1), ("c", "root", 1)], [], {})
    assert [
        change.description.split()[1] for change in make(FakeSacctmgr(), target).changes
    ] == list("cba")


def test_a_changed_share_is_one_change_that_touches_nothing_else():
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


def test_what_an_admin_made_is_left_alone_even_when_pruning():
    slurm = FakeSacctmgr()
    make(slurm, SMALL)
    slurm.accounts["handmade"] = {"parent": "root", "fairshare": "9", "organization": "x"}
    slurm.members["handmade", "carl"] = {}
    slurm.defaults["carl"] = "handmade"
    account_plan = make(slurm, SMALL, prune=True)
    assert account_plan.changes == ()
    assert account_plan.left_alone == ("account handmade", "user carl in account handmade")


def test_root_is_never_touched():
    slurm = FakeSacctmgr()
    make(slurm, book([], [], {}), prune=True)
    assert slurm.changes == []


def test_an_admins_account_that_is_declared_gets_its_share_but_not_another_owner():
    slurm = FakeSacctmgr()
    slurm.accounts["vision"] = {"parent": "root", "fairshare": "9", "organization": "x"}
    make(slurm, SMALL)
    assert slurm.accounts["vision"] == {"parent": "root", "fairshare": "60", "organization": "x"}


def test_what_is_no_longer_declared_goes_only_when_pruning():
    slurm = FakeSacctmgr()
    make(slurm, SMALL)
    smaller = book([("speech", "root", 40)], [("speech", "bob")], {"bob": "speech"})
    assert make(slurm, smaller).changes == ()
    assert whats(make(slurm, smaller, prune=True).changes) == [
        "remove user ada in account vision",
        "remove user bob in account vision",
        "remove account vision",
    ]


def test_a_refusal_stops_and_the_next_run_goes_on_from_there():
    slurm = FakeSacctmgr()
    refuse = plan(SMALL, read(slurm, "demo"), "demo")
    slurm.accounts["vision"] = {"parent": "root", "fairshare": "60", "organization": "toolkit"}
    changes = []
    with pytest.raises(RefusedError):
        apply(slurm, refuse, changes.append)
    assert whats(changes) == ["add account speech under root, fairshare 40"]
    make(slurm, SMALL)
    assert make(slurm, SMALL).changes == ()


def test_accounts_in_a_circle_do_not_hang_the_plan():
    circle = book([("a", "b", 1), ("b", "a", 1)], [], {})
    assert len(plan(circle, AccountTree(), "demo").changes) == 2


def test_partition_associations_and_the_share_called_parent_are_understood():
    current = parse(
        "vision|toolkit\n",
        "root||||1\nroot|root|||1\nvision|||root|parent\nvision|ada|spot||5\n",
        "ada|vision\nroot|root\n",
    )
    assert current.associations == {Association("root", "root")}
    assert current.accounts["vision"].fairshare == 2**31 - 1


def test_an_answer_of_another_shape_is_an_error():
    with pytest.raises(SlurmAnswerError):
        parse("vision\n", "", "")
