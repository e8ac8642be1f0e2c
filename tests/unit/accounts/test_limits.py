"""Limits and shares of cluster.yaml: what is set, what is taken back, and what is never touched."""

import json

import pytest
from pydantic import ValidationError

from tests.fakes.sacctmgr import FakeSacctmgr
from tests.unit.render.render_samples import a_config
from toolkit.accounts import apply, whole_plan
from toolkit.accounts.associations import parse_associations
from toolkit.accounts.limits import plan_limits
from toolkit.accounts.model import Association
from toolkit.deploy import left_users
from toolkit.head_runner import SlurmAnswerError

VISION = {
    "total": {"jobs": 20, "submit": 100, "tres": {"gres/gpu": 32, "mem": 2048}},
    "per_user": {"jobs": 4, "submit": 40},
    "per_job": {"node": 8},
    "max_time": "2-00:00:00",
}
ADA = {"jobs": 2, "submit": 9, "tres": {"gres/gpu": 8}, "per_job": {"cpu": 64}, "max_time": "90"}


def config(limits=VISION, ada=ADA, fairshare=5, **changes):
    user = {"name": "ada", "uid": 2001, "account": "vision", "limits": ada or {}}
    return a_config(
        **{
            "accounts": [{"name": "vision", "fairshare": 60, "limits": limits or {}}],
            "users": [user if fairshare is None else {**user, "fairshare": fairshare}],
            **changes,
        }
    )


def make(slurm, given, **options):
    made = whole_plan(given, slurm, **options)
    apply(slurm, made, lambda change: None)
    return made


def texts(made):
    return [f"{change.verb} {change.description}" for change in made.changes]


def shown(slurm, account="vision", user="ada"):
    known = slurm.members[account, user] if user else slurm.account_limits[account]
    return {key: text for key, text in known.items() if text}


BARE = {"limits": None, "ada": None, "fairshare": None}


def test_limits_and_shares_are_set_and_a_second_plan_changes_nothing():
    slurm = FakeSacctmgr()
    made = make(slurm, config())
    account, user = texts(made)[2:]
    assert account == (
        "change account vision: GrpTRES=gres/gpu none → 32, GrpTRES=mem none → 2048, GrpJobs none"
        " → 20, GrpSubmitJobs none → 100, MaxTRES=node none → 8, MaxJobs none → 4, MaxSubmitJobs"
        " none → 40, MaxWall none → 2-00:00:00"
    )
    assert user == (
        "change user ada in account vision: fairshare 1 → 5, GrpTRES=gres/gpu none → 8, MaxTRES=cpu"
        " none → 64, MaxJobs none → 2, MaxSubmitJobs none → 9, MaxWall none → 0-01:30:00"
    )
    assert shown(slurm)["maxwall"] == "01:30:00"
    assert shown(slurm)["share"] == "5"
    assert shown(slurm, user="")["grptres"] == "gres/gpu=32,mem=2G"
    assert make(slurm, config()).changes == ()


def test_sacctmgr_gets_one_call_for_each_account_and_user():
    slurm = FakeSacctmgr()
    *_, user = make(slurm, config()).changes
    where = ("where", "name=ada", "account=vision", "cluster=demo")
    marks = "fairshare=5,grptres=gres/gpu=8,maxtres=cpu=64,maxjobs=2,maxsubmitjobs=9"
    assert user.argv == (
        *("sacctmgr", "-i", "modify", "user", *where, "set", "fairshare=5"),
        *("GrpTRES=gres/gpu=8", "MaxTRES=cpu=64", "MaxJobs=2", "MaxSubmitJobs=9"),
        "MaxWall=0-01:30:00",
        f"comment=toolkit:made toolkit:set={marks},maxwall=0-01:30:00",
    )


def test_a_changed_limit_is_changed_alone():
    slurm = FakeSacctmgr()
    make(slurm, config())
    (change,) = make(slurm, config(ada={**ADA, "jobs": 3})).changes
    assert change.description == "user ada in account vision: MaxJobs 2 → 3"
    assert [word for word in change.argv if "Max" in word] == ["MaxJobs=3"]
    assert make(slurm, config(ada={**ADA, "jobs": 3})).changes == ()


def test_limits_that_are_taken_out_of_cluster_yaml_are_taken_back():
    slurm = FakeSacctmgr()
    make(slurm, config())
    account, user = make(slurm, config(**BARE)).changes
    assert {"GrpTRES=gres/gpu=-1,mem=-1", "GrpJobs=-1", "MaxWall=-1"} < set(account.argv)
    assert {"fairshare=1", "MaxJobs=-1", "MaxSubmitJobs=-1", "comment=toolkit:made"} < set(
        user.argv
    )
    assert shown(slurm) == {"comment": "toolkit:made", "share": "1"}
    assert shown(slurm, user="") == {}
    assert make(slurm, config(**BARE)).changes == ()


def test_a_limit_of_an_admin_that_cluster_yaml_does_not_name_is_never_touched():
    slurm = FakeSacctmgr()
    make(slurm, config(**BARE))
    slurm.members["vision", "ada"] |= {"maxjobs": "7", "grptres": "cpu=9", "share": "3"}
    slurm.account_limits["vision"] = {"grpjobs": "8", "comment": "paid until may | grant 12"}
    given = config(limits={"per_user": {"jobs": 4}}, ada={"tres": {"node": 2}}, fairshare=None)
    make(slurm, given)
    assert shown(slurm)["grptres"] == "cpu=9,node=2"
    assert make(slurm, given).changes == ()
    make(slurm, config(**BARE))
    assert shown(slurm) == {
        "maxjobs": "7",
        "grptres": "cpu=9",
        "share": "3",
        "comment": "toolkit:made",
    }
    assert shown(slurm, user="") == {"grpjobs": "8", "comment": "paid until may | grant 12"}


def test_a_limit_that_an_admin_had_set_as_cluster_yaml_says_stays_afterwards():
    slurm = FakeSacctmgr()
    make(slurm, config(**BARE))
    slurm.members["vision", "ada"]["maxjobs"] = "2"
    assert make(slurm, config(**{**BARE, "ada": {"jobs": 2}})).changes == ()
    assert make(slurm, config(**BARE)).changes == ()
    assert shown(slurm)["maxjobs"] == "2"


def test_a_limit_that_an_admin_changed_since_is_set_again_but_not_taken_back():
    slurm = FakeSacctmgr()
    given = config(**{**BARE, "ada": {"jobs": 2}})
    make(slurm, given)
    slurm.members["vision", "ada"]["maxjobs"] = "50"
    assert texts(make(slurm, given)) == ["change user ada in account vision: MaxJobs 50 → 2"]
    slurm.members["vision", "ada"]["maxjobs"] = "50"
    assert texts(make(slurm, config(**BARE))) == [
        "change user ada in account vision: MaxJobs 50 is no longer the toolkit's"
    ]
    assert shown(slurm)["maxjobs"] == "50"
    slurm.members["vision", "ada"]["maxjobs"] = "2"  # as the toolkit had once set it
    assert make(slurm, config(**BARE)).changes == ()


def test_a_limit_of_the_account_is_not_read_as_the_users_own():
    """Read it where it is set: sacctmgr also shows it of users."""
    slurm = FakeSacctmgr()
    given = config(limits={"per_user": {"jobs": 2}}, ada={"jobs": 2}, fairshare=None)
    make(slurm, given)
    assert shown(slurm)["maxjobs"] == "2"
    make(slurm, config(**{**BARE, "limits": {"per_user": {"jobs": 2}}}))
    assert "maxjobs" not in shown(slurm)


def test_a_users_limits_hold_in_each_of_the_users_accounts():
    slurm = FakeSacctmgr()
    accounts = [{"name": "vision"}, {"name": "speech", "users": ["ada"]}]
    make(slurm, config(accounts=accounts))
    assert shown(slurm, "speech")["maxjobs"] == shown(slurm, "vision")["maxjobs"] == "2"


def test_an_apply_that_was_cut_off_is_completed_by_the_next():
    slurm = FakeSacctmgr()
    planned = whole_plan(config(), slurm)
    for change in planned.changes[:-1]:
        slurm.run(change.argv)
    assert texts(make(slurm, config())) == texts(planned)[-1:]
    assert make(slurm, config()).changes == ()


def test_a_share_of_one_is_set_where_an_admin_had_set_another():
    slurm = FakeSacctmgr()
    make(slurm, config(**BARE))
    slurm.members["vision", "ada"]["share"] = "parent"
    given = config(**{**BARE, "fairshare": 1})
    assert texts(make(slurm, given)) == ["change user ada in account vision: fairshare parent → 1"]
    assert make(slurm, given).changes == ()
    assert texts(make(slurm, config(**BARE))) == [
        "change user ada in account vision: fairshare 1 is no longer the toolkit's"
    ]
    assert make(slurm, config(**BARE)).changes == ()


BUDGETS = {"grants": {"account": "vision", "usd": 100, "period": "month"}}


def test_a_budget_that_refuses_jobs_keeps_its_limit():
    slurm = FakeSacctmgr()
    make(slurm, config(budgets=BUDGETS))
    slurm.account_limits["vision"]["grpsubmitjobs"] = "0"
    made = make(slurm, config(budgets=BUDGETS))
    assert made.changes == ()
    assert made.notes == (
        "account vision: GrpSubmitJobs is 0 while its budget refuses jobs, and stays",
    )
    make(slurm, config(**BARE, budgets=BUDGETS))
    assert slurm.account_limits["vision"]["grpsubmitjobs"] == "0"
    slurm.account_limits["vision"]["grpsubmitjobs"] = "100"  # the budget puts it back
    (change,) = make(slurm, config(**BARE, budgets=BUDGETS)).changes
    assert change.description == "account vision: GrpSubmitJobs 100 → none"


class Head:
    """A head node with a list of users who left."""

    def __init__(self, slurm, *left) -> None:
        self.slurm, self.left = slurm, left

    def run(self, argv, *, timeout=60):
        if argv[0] == "cat":
            return json.dumps([{"name": name, "left": True} for name in self.left])
        return self.slurm.run(argv) if argv[0] == "sacctmgr" else ""


def test_a_user_who_left_stays_locked_out_and_comes_back_with_the_limits_of_before():
    slurm, given = FakeSacctmgr(), config()
    make(slurm, given)
    before = shown(slurm)
    left_users.limit_left_users(given, Head(slurm, "ada"))
    assert shown(slurm)["maxsubmitjobs"] == "0"
    assert make(slurm, given).changes == ()
    left_users.limit_left_users(given, Head(slurm))
    assert shown(slurm) == before
    assert make(slurm, given).changes == ()


def test_a_user_who_left_keeps_no_limit_of_the_account_as_her_own():
    slurm, given = FakeSacctmgr(), config(**{**BARE, "limits": VISION})
    make(slurm, given)
    left_users.limit_left_users(given, Head(slurm, "ada"))
    left_users.limit_left_users(given, Head(slurm))
    assert "maxsubmitjobs" not in shown(slurm)
    assert shown(slurm)["comment"] == "toolkit:made"


@pytest.mark.parametrize("comment", ["it's ada's", 'a "visit"', "Visits"])
def test_an_association_whose_comment_can_not_be_kept_is_not_changed(comment):
    slurm = FakeSacctmgr()
    make(slurm, config(**BARE))
    slurm.members["vision", "ada"]["comment"] = comment
    made = make(slurm, config(**{**BARE, "ada": ADA}))
    assert made.changes == ()
    (note,) = made.notes
    assert note.startswith(
        "user ada in account vision: not changed, because sacctmgr would change the"
    )
    assert make(slurm, config(**BARE)).notes == ()


def test_a_user_with_associations_of_partitions_is_not_changed():
    slurm = FakeSacctmgr()
    make(slurm, config(**BARE))
    slurm.partitions.add(("vision", "ada", "spot"))
    made = make(slurm, config(**{**BARE, "ada": ADA}), adopt=True)
    assert made.changes == ()
    (note,) = made.notes
    assert "associations of single partitions" in note


def test_a_user_with_an_association_of_a_partition_alone_is_not_changed():
    text = "vision|||1|||||||||\nvision|ada|spot|5|||||||||\n"
    existing = parse_associations(text)
    target = {Association("vision", "ada"): {"fairshare": "7"}}
    made = plan_limits(target, existing, "demo")
    assert made.changes == ()
    (note,) = made.notes
    assert "associations of single partitions" in note


def test_users_whom_an_admin_added_are_adopted_by_an_option_alone():
    slurm = FakeSacctmgr()
    make(slurm, config(**BARE))
    slurm.members["vision", "ada"] = {"comment": "by hand"}
    make(slurm, config())
    assert "toolkit:made" not in shown(slurm)["comment"]
    assert texts(make(slurm, config(), adopt=True)) == [
        "change user ada in account vision: adopted"
    ]
    assert make(slurm, config(), adopt=True).changes == ()
    assert shown(slurm)["comment"].startswith("toolkit:made toolkit:set=")
    assert shown(slurm)["comment"].endswith(" by hand")
    make(slurm, config(users=[]), prune=True)
    assert ("vision", "ada") not in slurm.members


def test_slurms_own_forms_of_times_and_memory_are_the_same_as_ours():
    text = (
        "vision|||60|cpu=64,mem=2G|20|100|node=8|4|40|2-00:00:00|toolkit:set=grpjobs=20\n"
        "vision|ada||parent|||||||08:00:00|a | b\n"
        "vision|ada|spot|1|||||||||\n"
        "vision|eve||1|bb/fast=1P,cpu=3||||||UNLIMITED|\n"
    )
    found = parse_associations(text)
    assert found[Association("vision", "")].settings == {
        "GrpTRES=cpu": "64",
        "GrpTRES=mem": "2048",
        "GrpJobs": "20",
        "GrpSubmitJobs": "100",
        "MaxTRES=node": "8",
        "MaxJobs": "4",
        "MaxSubmitJobs": "40",
        "MaxWall": "2-00:00:00",
    }
    ada = found[Association("vision", "ada")]
    assert ada.settings == {"fairshare": "parent", "MaxWall": "0-08:00:00"}
    assert (ada.marks.rest, ada.has_partitions) == ("a | b", True)
    eve = found[Association("vision", "eve")]
    assert eve.settings["GrpTRES=bb/fast"] == "1P"  # an admin's, which is never written
    with pytest.raises(SlurmAnswerError):
        parse_associations("vision|ada\n")


@pytest.mark.parametrize(
    "limits",
    [
        {"total": {"jobs": -1}},
        {"total": {"tres": {"billing": 5}}},
        {"total": {"tres": {"cpu=1,mem": 5}}},
        {"total": {"minutes": 5}},
        {"per_user": {"tres": {"cpu": 5}}},
        {"per_job": {"cpu": "many"}},
        {"max_time": "infinite"},
        {"max_time": "0"},
        {"max_time": "00:00:00"},
        {"max_time": "1 GrpJobs=5"},
        {"max_time": "99999999"},
    ],
)
def test_values_that_are_no_limits_are_refused(limits):
    with pytest.raises(ValidationError):
        config(limits=limits)


@pytest.mark.parametrize("ada", [{"total": {}}, {"jobs": 1.5}, {"per_user": {}}, {"submit": "-1"}])
def test_values_that_are_no_limits_of_a_user_are_refused(ada):
    with pytest.raises(ValidationError):
        config(ada=ada)


@pytest.mark.parametrize("share", [-1, "parent", 1_000_001])
def test_a_share_that_is_no_number_is_refused(share):
    with pytest.raises(ValidationError):
        config(fairshare=share)
