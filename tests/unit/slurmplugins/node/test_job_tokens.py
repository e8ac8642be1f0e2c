"""Job tokens: who can read one, what it proves, and when it ends."""

from __future__ import annotations

import os
import stat

import pytest

from slurmplugins.errors import BadName
from slurmplugins.node import job_tokens
from slurmplugins.node.job_tokens import JobIdentity

ADA = JobIdentity(4711, os.getuid(), "ada", "vision")
PROLOG = {"SLURM_JOB_ID": "4711", "SLURM_JOB_UID": "2001", "SLURM_JOB_ACCOUNT": "vision"}


@pytest.fixture
def jobs(tmp_path):
    return tmp_path / "jobs"


def token_of(jobs, job=4711):
    return (jobs / str(job) / "token").read_text()


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_a_token_proves_the_job_that_it_was_written_for(jobs):
    job_tokens.grant(jobs, ADA)
    assert job_tokens.identify(jobs, token_of(jobs)) == ADA


def test_the_users_file_is_readable_by_the_user_alone_and_the_record_by_root_alone(jobs):
    previous = os.umask(0o777)
    try:
        job_tokens.grant(jobs, ADA)
    finally:
        os.umask(previous)
    assert mode(jobs / "4711" / "token") == 0o400
    assert mode(jobs / "4711" / "record.json") == 0o600
    assert mode(jobs / "4711") == 0o711


@pytest.mark.skipif(os.getuid() != 0, reason="only root gives files away")
def test_the_users_file_is_the_users_own(jobs):
    job_tokens.grant(jobs, JobIdentity(4711, 2001, "ada", "vision"))
    assert (jobs / "4711" / "token").stat().st_uid == 2001
    assert (jobs / "4711" / "record.json").stat().st_uid == 0


def test_the_record_does_not_hold_the_token(jobs):
    job_tokens.grant(jobs, ADA)
    secret = token_of(jobs).partition(".")[2]
    assert len(secret) == 64
    assert secret not in (jobs / "4711" / "record.json").read_text()


def test_a_token_can_be_sent_as_a_header(jobs):
    """Botocore refuses a token with a line's end in it."""
    job_tokens.grant(jobs, ADA)
    assert token_of(jobs).strip() == token_of(jobs)


def test_what_a_user_writes_into_her_file_changes_nobodys_identity(jobs):
    job_tokens.grant(jobs, ADA)
    job_tokens.grant(jobs, JobIdentity(4712, os.getuid(), "ben", "vision"))
    forged = "4712." + token_of(jobs).partition(".")[2]
    assert job_tokens.identify(jobs, forged) is None


@pytest.mark.parametrize(
    "token",
    ["", "4711", "4711.", "4711." + "0" * 64, "../4711." + "0" * 64, "04711." + "0" * 64,
     "4711." + "0" * 64 + "\n", "٤٧١١." + "0" * 64],
)  # fmt: skip
def test_no_other_text_is_a_token(jobs, token):
    job_tokens.grant(jobs, ADA)
    assert job_tokens.identify(jobs, token) is None


def test_each_start_of_a_job_has_a_new_token_and_ends_the_old_one(jobs):
    job_tokens.grant(jobs, ADA)
    old = token_of(jobs)
    job_tokens.grant(jobs, ADA)
    assert job_tokens.identify(jobs, old) is None
    assert job_tokens.identify(jobs, token_of(jobs)) == ADA


def test_after_the_end_of_a_job_its_token_proves_nothing(jobs):
    job_tokens.grant(jobs, ADA)
    token = token_of(jobs)
    for _ in range(2):
        job_tokens.revoke(jobs, 4711)
        assert job_tokens.identify(jobs, token) is None


def test_a_damaged_record_proves_nothing(jobs):
    job_tokens.grant(jobs, ADA)
    for text in ("", "[]", "{}", '{"sha256": 1}'):
        (jobs / "4711" / "record.json").write_text(text)
        assert job_tokens.identify(jobs, token_of(jobs)) is None


def test_the_facts_about_a_job_are_those_that_slurmd_tells_its_prolog():
    identity = job_tokens.identity_of({**PROLOG, "SPANK_SLURM_JOB_UID": "0"}, "ada")
    assert identity == JobIdentity(4711, 2001, "ada", "vision")


def test_a_job_without_an_account_has_the_account_none():
    assert job_tokens.identity_of({**PROLOG, "SLURM_JOB_ACCOUNT": ""}, "ada").account == "none"


def test_a_component_of_a_het_job_has_the_token_where_its_tasks_look():
    assert job_tokens.identity_of({**PROLOG, "SLURM_HET_JOB_ID": "4700"}, "ada").job == 4700


@pytest.mark.parametrize(
    "user", ["", "a/b", "*", "ad?", "${aws:username}", "..", "-rf", "ada\n", "x" * 33]
)
def test_a_user_name_that_is_no_single_folder_in_s3_gets_no_token(user):
    with pytest.raises(BadName, match="can't be a prefix"):
        job_tokens.identity_of(PROLOG, user)


@pytest.mark.parametrize(
    "changes",
    [{"SLURM_JOB_ID": "../1"}, {"SLURM_JOB_ID": "0"}, {"SLURM_JOB_UID": "x"},
     {"SLURM_JOB_ACCOUNT": "a*b"}],
)  # fmt: skip
def test_facts_that_can_not_be_are_refused(changes):
    with pytest.raises(BadName):
        job_tokens.identity_of({**PROLOG, **changes}, "ada")
