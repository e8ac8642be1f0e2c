"""Accounts as part of a deploy."""

import pytest

from tests.fakes.sacctmgr import FakeSacctmgr
from tests.unit.deploy.samples import Report, example
from toolkit.accounts.plan import AccountTakenError
from toolkit.config.limits import UserLimits
from toolkit.deploy.slurm_accounts import apply_accounts


class Slurmdbd:
    """A slurmdbd without accounts, which keeps the commands."""

    def __init__(self) -> None:
        self.calls = []

    def run(self, argv, *, timeout=60):
        if "show" not in argv:
            self.calls.append(" ".join(argv))
        return ""


def test_deploy_adds_declared_accounts_before_their_users():
    """Add accounts before their users, and print the numbers of both."""
    runner, report = Slurmdbd(), Report()
    assert apply_accounts(example(), runner, report) >= 4
    first_user = next(at for at, text in enumerate(runner.calls) if "ada" in text)
    assert any("vision" in text for text in runner.calls[:first_user])
    assert report.lines[0] == "Setting up accounts and users"


def test_deploy_removes_no_account_or_user():
    """Keep the history of a person whose line is gone from cluster.yaml."""
    runner = Slurmdbd()
    config = example().model_copy(update={"accounts": (), "users": ()})
    apply_accounts(config, runner, Report())
    assert not [text for text in runner.calls if "delete" in text or "remove" in text]


def test_deploy_says_which_limits_it_did_not_set():
    slurm, report, config = FakeSacctmgr(), Report(), example()
    apply_accounts(config, slurm, report)
    slurm.partitions.add(("vision", "ada", "spot"))
    users = tuple(
        user.model_copy(update={"limits": UserLimits(jobs=4)}) if user.name == "ada" else user
        for user in config.users
    )
    assert apply_accounts(config.model_copy(update={"users": users}), slurm, report) == 0
    assert report.lines[-1].startswith("user ada in account vision: not changed, because")


def test_deploy_does_not_change_an_account_that_an_admin_made():
    slurm = FakeSacctmgr()
    slurm.accounts["vision"] = {"parent": "root", "fairshare": "9", "organization": "physics"}
    with pytest.raises(AccountTakenError):
        apply_accounts(example(), slurm, Report())
    assert slurm.changes == []
