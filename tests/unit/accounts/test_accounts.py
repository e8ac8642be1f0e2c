"""The accounts of cluster.yaml compared with those of slurmdbd.

Declared accounts and users are added or changed. Others stay as they are.
"""

import pytest

from tests.fakes.sacctmgr import FakeSacctmgr, RefusedError
from toolkit.accounts import (
    Account,
    AccountTree,
    Association,
    apply,
    plan,
    read,
    read_associations,
    with_marks,
)
from toolkit.accounts.current import parse
from toolkit.accounts.plan import AccountTakenError
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


def current(slurm):
    return with_marks(read(slurm, "demo"), read_associations(slurm, "demo"))


def make(slurm, target, *, prune=False, adopt=False):
    account_plan = plan(target, current(slurm), "demo", prune=prune, adopt=adopt)
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
    assert account_plan.left_alone == (
        "account handmade, not made by the toolkit",
        "user carl in account handmade, not made by the toolkit",
    )


def test_a_user_whom_an_admin_put_into_an_account_of_ours_is_never_removed():
    slurm = FakeSacctmgr()
    make(slurm, SMALL)
    slurm.members["vision", "carl"] = {"comment": "visits until may"}
    slurm.defaults["carl"] = "vision"
    account_plan = make(slurm, SMALL, prune=True)
    assert account_plan.changes == ()
    assert account_plan.left_alone == ("user carl in account vision, not made by the toolkit",)


def test_an_account_of_ours_stays_while_it_has_users_or_accounts_of_an_admin():
    """Keep it: slurmdbd would remove all that is below it, too."""
    slurm = FakeSacctmgr()
    make(slurm, SMALL)
    slurm.members["vision", "carl"] = {}
    slurm.defaults["carl"] = "vision"
    slurm.accounts["below"] = {"parent": "speech", "fairshare": "1", "organization": "x"}
    account_plan = make(slurm, book([], [], {}), prune=True)
    assert whats(account_plan.changes) == [
        "remove user ada in account vision",
        "remove user bob in account vision",
        "remove user bob in account speech",
    ]
    assert account_plan.left_alone == (
        "account below, not made by the toolkit",
        "account vision, with users or accounts below it that stay",
        "account speech, with users or accounts below it that stay",
        "user carl in account vision, not made by the toolkit",
    )


def test_a_users_default_account_stays_while_an_admin_has_the_user_in_another():
    """Keep it: sacctmgr refuses to remove a default account beside others."""
    slurm = FakeSacctmgr()
    make(slurm, SMALL)
    slurm.accounts["handmade"] = {"parent": "root", "fairshare": "9", "organization": "x"}
    slurm.members["handmade", "bob"] = {}
    account_plan = make(slurm, book([], [], {}), prune=True)
    assert "user bob in account speech, as the user's default account" in account_plan.left_alone
    assert make(slurm, book([], [], {}), prune=True).changes == ()


def test_a_user_with_an_association_of_one_partition_is_not_removed():
    """Keep her: sacctmgr can't name one of the two associations alone."""
    slurm = FakeSacctmgr()
    make(slurm, SMALL)
    slurm.partitions.add(("vision", "bob", "spot"))
    smaller = book(
        [("vision", "root", 60), ("speech", "root", 40)],
        [("vision", "ada"), ("speech", "bob")],
        {"ada": "vision", "bob": "speech"},
    )
    account_plan = make(slurm, smaller, prune=True)
    assert account_plan.changes == ()
    assert account_plan.left_alone == (
        "user bob in account vision, with associations of single partitions, which an admin made",
    )


@pytest.mark.parametrize("name", ["a,vision", "x=y", "a b", "1;id"])
def test_a_name_that_cluster_yaml_could_not_have_is_never_removed(name):
    slurm = FakeSacctmgr()
    make(slurm, SMALL)
    slurm.accounts[name] = {"parent": "root", "fairshare": "1", "organization": "toolkit"}
    slurm.members["vision", name] = {"comment": "toolkit:made"}
    account_plan = make(slurm, SMALL, prune=True)
    assert account_plan.changes == ()
    assert len(account_plan.left_alone) == 2


def test_the_root_account_is_never_changed():
    slurm = FakeSacctmgr()
    make(slurm, book([], [], {}), prune=True)
    assert slurm.changes == []


def by_hand(slurm, *users):
    """Make account vision as an admin would."""
    slurm.accounts["vision"] = {"parent": "root", "fairshare": "9", "organization": "x"}
    for user in users:
        slurm.members["vision", user] = {}
        slurm.defaults[user] = "vision"


def test_a_declared_account_of_an_admin_is_refused_and_nothing_is_changed():
    slurm = FakeSacctmgr()
    by_hand(slurm)
    with pytest.raises(AccountTakenError, match="account vision was not made by the tool") as error:
        make(slurm, SMALL)
    assert "toolkit accounts apply --adopt" in error.value.next_step
    assert slurm.changes == []


def test_a_declared_account_that_an_admin_has_on_another_cluster_is_refused_too():
    slurm = FakeSacctmgr()
    slurm.elsewhere["vision"] = "physics | biology"
    with pytest.raises(AccountTakenError, match="account vision"):
        make(slurm, SMALL)
    make(slurm, SMALL, adopt=True)
    assert make(slurm, SMALL).changes == ()


def test_an_adopted_account_is_the_toolkits_from_then_on():
    slurm = FakeSacctmgr()
    by_hand(slurm)
    assert whats(make(slurm, SMALL, adopt=True).changes)[:2] == [
        "change account vision: adopted",
        "add account speech under root, fairshare 40",
    ]
    assert slurm.accounts["vision"]["organization"] == "toolkit"
    assert slurm.accounts["vision"]["fairshare"] == "60"
    assert make(slurm, SMALL).changes == ()
    assert "remove account vision" in whats(make(slurm, book([], [], {}), prune=True).changes)


def test_adopt_takes_only_what_cluster_yaml_declares():
    slurm = FakeSacctmgr()
    by_hand(slurm, "carl")
    slurm.accounts["other"] = {"parent": "root", "fairshare": "9", "organization": "x"}
    make(slurm, SMALL, adopt=True)
    assert slurm.accounts["other"]["organization"] == "x"
    assert slurm.members["vision", "carl"] == {}


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
    refuse = plan(SMALL, current(slurm), "demo")
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
