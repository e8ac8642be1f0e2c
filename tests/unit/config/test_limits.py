"""Limits and shares in cluster.yaml: a bad value is refused with its line and a word that helps."""

import pytest

from tests.unit.config.test_load import GOOD, problems
from toolkit.config import parse

ACCOUNT = (
    "  - {name: vision, limits: {total: {jobs: 40, tres: {gres/gpu: 8}}, max_time: 1-00:00:00}}"
)
USER = (
    "  - {name: ada, uid: 2001, account: vision, fairshare: 5, limits: {submit: 9, max_time: 90}}"
)
TEXT = GOOD.replace("  - {name: vision}", ACCOUNT).replace(
    "  - {name: ada, uid: 2001, account: vision}", USER.replace("90", '"90"')
)


def test_limits_and_shares_are_read():
    config = parse(TEXT)
    assert config.accounts[0].limits.total.tres == {"gres/gpu": 8}
    assert config.accounts[0].limits.per_user.jobs is None
    assert (config.users[0].fairshare, config.users[0].limits.submit) == (5, 9)


@pytest.mark.parametrize(
    ("old", "new", "path", "words"),
    [
        ("jobs: 40", "jobs: -1", "accounts[0].limits.total.jobs", "0"),
        ("jobs: 40", "job: 40", "accounts[0].limits.total.job", "jobs"),
        ("gres/gpu: 8", "gpu: 8", "accounts[0].limits.total.tres.gpu", "gres/gpu"),
        ("gres/gpu: 8", "billing: 8", "accounts[0].limits.total.tres.billing", "a TRES"),
        ("1-00:00:00", "infinite", "accounts[0].limits.max_time", "a Slurm time"),
        ("1-00:00:00", "'00:00:00'", "accounts[0].limits.max_time", "at least a minute"),
        ("1-00:00:00", "'1 GrpJobs=9'", "accounts[0].limits.max_time", "a Slurm time"),
        ("1-00:00:00", "'٩٠'", "accounts[0].limits.max_time", "a Slurm time"),
        ("submit: 9", "total: {jobs: 9}", "users[0].limits.total", "unknown"),
        ("submit: 9", "submit: 1.5", "users[0].limits.submit", "integer"),
        ("fairshare: 5", "fairshare: parent", "users[0].fairshare", "integer"),
        ("fairshare: 5", "fairshare: 1000001", "users[0].fairshare", "1000000"),
    ],
)
def test_a_bad_value_is_refused(old, new, path, words):
    assert old in TEXT
    found = problems(TEXT.replace(old, new))
    assert path in found, found
    line, message = found[path]
    assert line > GOOD.count("\n", 0, GOOD.index("accounts:"))
    assert words in message, message
