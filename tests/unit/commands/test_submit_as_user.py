"""`toolkit submit --user`: sbatch runs on the head as that user, in her home."""

import pytest

from toolkit.commands import submit
from toolkit.errors import HeadCommandFailed
from toolkit.head_runner import UnknownUserError
from toolkit.submit.slurm_client import SlurmClient, UserRunner


class Head:
    """A head node that knows ada."""

    def __init__(self) -> None:
        self.calls = []

    def run(self, argv, *, timeout=60):
        self.calls.append(list(argv))
        if argv[0] != "getent":
            return "gpu\n"
        if argv[-1] != "ada":
            raise HeadCommandFailed("getent: exit code 2", returncode=2)
        return "ada:x:2001:2001::/shared/home/ada:/bin/bash\n"


def test_a_command_runs_in_the_users_home_without_roots_variables():
    head = Head()
    assert SlurmClient(UserRunner(head, "ada")).partitions() == ("gpu",)
    words = head.calls[-1]
    assert words[: words.index("sinfo")] == [
        *("runuser", "-u", "ada", "--", "env", "-i", "--chdir=/shared/home/ada"),
        *("PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/shared/home/ada", "USER=ada"),
    ]


def test_a_user_whom_the_head_does_not_know_is_named():
    with pytest.raises(UnknownUserError, match="zoe is no user"):
        SlurmClient(UserRunner(Head(), "zoe")).partitions()


def test_a_head_that_can_not_be_asked_is_no_unknown_user():
    def run(argv, *, timeout=60):
        raise HeadCommandFailed("the instance is stopped", returncode=-1)

    head = Head()
    head.run = run
    with pytest.raises(HeadCommandFailed, match="stopped"):
        SlurmClient(UserRunner(head, "ada")).partitions()


def test_variables_that_the_job_will_not_get_are_named(monkeypatch, capsys):
    monkeypatch.setenv("TOOLKIT_MAX_USD", "200")
    monkeypatch.setenv("SBATCH_ACCOUNT", "vision")
    monkeypatch.setenv("TOOLKIT_CONFIG", "cluster.yaml")
    assert submit._environment("ada") == {}
    warning = capsys.readouterr().err
    assert "SBATCH_ACCOUNT, TOOLKIT_MAX_USD" in warning
    assert "TOOLKIT_CONFIG" not in warning
    assert submit._environment(None)["TOOLKIT_MAX_USD"] == "200"
    assert capsys.readouterr().err == ""
