"""Accounts as part of a deploy."""

from tests.unit.deploy.samples import Report, example
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
