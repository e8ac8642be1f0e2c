"""Users who left: they submit nothing more, and their jobs are named."""

import json

import pytest

from tests.unit.deploy.samples import example
from toolkit.deploy import left_users
from toolkit.errors import HeadCommandFailed
from toolkit.head_runner import SlurmAnswerError


class Runner:
    """A head node that answers by program, and keeps the commands."""

    def __init__(self, **answers) -> None:
        self.answers, self.calls = answers, []

    def run(self, argv, *, timeout=60):
        self.calls.append(list(argv))
        answer = self.answers.get(argv[0], "")
        if isinstance(answer, Exception):
            raise answer
        return answer

    @property
    def changes(self):
        return [argv[-1] for argv in self.calls if "modify" in argv]


LIMITS = "|\nada|\ngrace|\nzoe|0\n"


def limited(before, left):
    runner = Runner(sacctmgr=LIMITS)
    left_users.limit_submissions(example(), runner, frozenset(before), frozenset(left))
    return runner


def test_who_left_may_submit_nothing():
    runner = limited((), ("grace", "zoe", "unknown"))
    assert runner.changes == ["maxsubmitjobs=0"]
    assert "name=grace" in runner.calls[-1]


def test_who_came_back_may_submit_again():
    runner = limited(("zoe",), ())
    assert runner.changes == ["maxsubmitjobs=-1"]
    assert "name=zoe" in runner.calls[-1]


def test_a_limit_that_an_admin_set_stays():
    assert limited((), ()).calls == []
    assert limited(("grace",), ()).changes == []


def test_only_who_is_marked_has_left():
    rows = [{"name": "ada"}, {"name": "zoe", "left": True}]
    assert left_users.read_left(Runner(cat=json.dumps(rows))) == {"zoe"}
    with pytest.raises(SlurmAnswerError):
        left_users.read_left(Runner(cat="{"))


def test_before_the_first_apply_nobody_has_left():
    stderr = "cat: /shared/.toolkit/users.json: No such file or directory"
    absent = HeadCommandFailed("cat on the head node: exit code 1", returncode=1, stderr=stderr)
    assert left_users.read_left(Runner(cat=absent)) == frozenset()


def test_a_list_that_can_not_be_read_frees_nobody():
    for error in (
        HeadCommandFailed("cat on the head node ran longer than 60 s"),
        HeadCommandFailed("cat on the head node: exit code 1", returncode=1, stderr="Stale file"),
    ):
        with pytest.raises(HeadCommandFailed):
            left_users.read_left(Runner(cat=error))


def test_jobs_are_counted_by_user_and_cancelled_by_user():
    runner = Runner(squeue="zoe\nzoe\n")
    jobs = left_users.jobs_of(runner, {"zoe", "bob"})
    assert jobs == {"zoe": 2}
    assert "2 jobs of zoe go on" in left_users.left_user_lines(jobs)[0]
    assert left_users.jobs_of(Runner(), ()) == {}
    left_users.cancel_jobs(runner, jobs)
    assert runner.calls[-1] == ["scancel", "--user=zoe"]
