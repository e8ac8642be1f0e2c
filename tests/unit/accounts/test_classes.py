"""Workload classes as QOS: what is added, changed and removed, and what is never touched."""

import pytest

from tests.fakes.sacctmgr import FakeSacctmgr
from tests.unit.render.render_samples import a_config
from toolkit.accounts import apply, whole_plan
from toolkit.accounts.classes import ClassTakenError, parse_classes
from toolkit.head_runner import SlurmAnswerError

ACCOUNTS = [{"name": "vision"}, {"name": "language"}]
CLASSES = {
    "train": {
        "priority": 50,
        "preempts": ["sweep"],
        "max_time": "2-00:00:00",
        "per_user": {"jobs": 4, "submit": 40, "tres": {"gres/gpu": 8, "mem": 2048}},
        "total": {"tres": {"cpu": 64}, "jobs": 20, "submit": 100},
    },
    "sweep": {"priority": 10, "per_account": {"jobs": 9, "tres": {"gres/gpu": 16}}},
    "release": {"accounts": ["vision"], "per_job": {"node": 2}, "max_time": "30"},
}


def config(**changes):
    return a_config(**{"accounts": ACCOUNTS, "users": [], "classes": CLASSES, **changes})


def make(slurm, given=None, *, prune=False):
    made = whole_plan(given or config(), slurm, prune=prune)
    apply(slurm, made, lambda change: None)
    return made


def texts(made):
    return [f"{change.verb} {change.description}" for change in made.changes]


def test_classes_are_added_and_a_second_plan_changes_nothing():
    slurm = FakeSacctmgr()
    made = texts(make(slurm))
    assert made[2:5] == ["add class train", "add class sweep", "add class release"]
    assert made[-2:] == [
        "change account vision may use release,sweep,train",
        "change account language may use sweep,train",
    ]
    assert slurm.qos["train"]["Preempt"] == "sweep"
    assert slurm.qos["train"]["MaxWall"] == "2-00:00:00"
    assert slurm.qos["train"]["MaxTRESPU"] == "gres/gpu=8,mem=2048"
    assert slurm.qos["release"]["MaxWall"] == "0-00:30:00"
    assert make(slurm).changes == ()


def test_a_changed_class_is_changed_alone_and_a_cleared_cap_is_cleared():
    slurm = FakeSacctmgr()
    make(slurm)
    other = {**CLASSES, "train": {"priority": 60, "per_user": {"tres": {"gres/gpu": 4}}}}
    (change,) = make(slurm, config(classes=other)).changes
    assert change.argv[:5] == ("sacctmgr", "-i", "modify", "qos", "where")
    assert set(change.argv[7:]) == {
        "Priority=60",
        "Preempt=",
        "MaxWall=-1",
        "GrpTRES=cpu=-1",
        "GrpJobs=-1",
        "GrpSubmitJobs=-1",
        "MaxTRESPU=gres/gpu=4,mem=-1",
        "MaxJobsPU=-1",
        "MaxSubmitJobsPU=-1",
    }
    assert make(slurm, config(classes=other)).changes == ()


def test_a_class_that_is_gone_stays_until_prune():
    slurm = FakeSacctmgr()
    make(slurm)
    fewer = config(classes={"sweep": CLASSES["sweep"]})
    made = make(slurm, fewer)
    assert made.changes == ()
    assert made.left_alone == ("class release", "class train")
    assert texts(make(slurm, fewer, prune=True)) == ["remove class release", "remove class train"]
    assert texts(make(slurm, config(classes={}), prune=True)) == ["remove class sweep"]
    assert slurm.qos.keys() == {"normal"}


def test_a_right_to_a_class_is_taken_back_by_prune_alone():
    slurm = FakeSacctmgr()
    make(slurm)
    closed = {**CLASSES, "sweep": {**CLASSES["sweep"], "accounts": ["vision"]}}
    assert make(slurm, config(classes=closed)).changes == ()
    assert texts(make(slurm, config(classes=closed), prune=True)) == [
        "change account language may not use sweep"
    ]


def test_a_qos_of_somebody_else_is_never_touched():
    slurm = FakeSacctmgr()
    slurm.qos["sweep"] = {"Description": "made by hand | by me"}
    with pytest.raises(ClassTakenError, match="QOS sweep was not made by the toolkit"):
        make(slurm)
    assert slurm.changes == []
    slurm.qos["urgent"] = slurm.qos.pop("sweep")
    make(slurm)
    make(slurm, config(classes={}), prune=True)
    assert slurm.qos.keys() == {"normal", "urgent"}


def test_a_user_with_a_list_of_her_own_gets_the_class_too():
    slurm = FakeSacctmgr()
    users = [{"name": "ada", "uid": 2001, "account": "vision"}]
    make(slurm, config(users=users))
    slurm.own_qos["vision", "ada"] = {"normal"}
    (change,) = make(slurm, config(users=users)).changes
    assert change.description == "user ada in account vision may use release,sweep,train"
    assert "account=vision" in change.argv


def test_without_classes_no_qos_is_read():
    slurm = FakeSacctmgr()
    make(slurm, config(classes={}))
    assert not any("qos" in words for words in slurm.shown)


def test_slurms_own_forms_of_times_and_memory_are_the_same_as_ours():
    row = "train|50|00:02:00|sweep,beta|2-00:00:00|cpu=64|||node=2|gres/gpu=8,mem=2G||||||toolkit\n"
    tree = parse_classes(row, "vision|||normal,train\nvision|ada||normal\nvision||spot|x\n")
    settings = tree.qos["train"].settings
    assert settings["GraceTime"] == "120"
    assert settings["MaxWall"] == str(2 * 86_400)
    assert settings["MaxTRESPU"] == "gres/gpu=8,mem=2048"
    assert settings["Preempt"] == "beta,sweep"
    assert tree.access == {("vision", ""): {"normal", "train"}, ("vision", "ada"): {"normal"}}


@pytest.mark.parametrize(
    "rows",
    ["train|50\n", "train|50|soon||||||||||||||toolkit\n", "t|1||||cpu=x||||||||||toolkit\n"],
)
def test_text_that_is_no_qos_is_refused(rows):
    with pytest.raises(SlurmAnswerError):
        parse_classes(rows, "")


def test_a_time_limit_with_seconds_is_rounded_as_slurm_rounds_it():
    """Round up, or a second plan would never be empty."""
    slurm = FakeSacctmgr()
    given = config(classes={"quick": {"max_time": "00:01:30"}})
    make(slurm, given)
    assert slurm.qos["quick"]["MaxWall"] == "0-00:02:00"
    assert make(slurm, given).changes == ()
