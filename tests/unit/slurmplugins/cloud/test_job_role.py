"""Sessions of the job role: their tags and name, and AWS's refusals."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from botocore.exceptions import ClientError

from slurmplugins.cloud.assumed_role import AssumedRole
from slurmplugins.cloud.job_role import JobRole
from slurmplugins.errors import Denied
from tests.fakes.clock import FakeClock

END = datetime(2026, 11, 24, 13, tzinfo=UTC)


class FakeSts:
    def __init__(self) -> None:
        self.requests: list[dict] = []
        self.fault: Exception | None = None

    def assume_role(self, **request):
        if self.fault is not None:
            raise self.fault
        self.requests.append(request)
        given = {"AccessKeyId": "ASIA", "SecretAccessKey": "s", "SessionToken": "t"}
        return {"Credentials": {**given, "Expiration": END}}


@pytest.fixture
def sts():
    return FakeSts()


@pytest.fixture
def role(sts):
    return JobRole("arn:aws:iam::1:role/jobs", lambda: sts, FakeClock())


def test_a_session_has_the_jobs_three_tags_and_lasts_an_hour(role, sts):
    given = role.credentials(user="ada", account="vision", job=7)
    (request,) = sts.requests
    assert {tag["Key"]: tag["Value"] for tag in request["Tags"]} == {
        "user": "ada", "account": "vision", "job": "7",
    }  # fmt: skip
    assert (request["RoleArn"], request["DurationSeconds"]) == ("arn:aws:iam::1:role/jobs", 3600)
    assert (given.key_id, given.secret, given.token) == ("ASIA", "s", "t")
    assert given.expires == END.timestamp()


def test_a_session_without_tags_passes_none(sts):
    AssumedRole("arn:aws:iam::1:role/mlflow", lambda: sts, FakeClock()).credentials("mlflow")
    (request,) = sts.requests
    assert request == {
        "RoleArn": "arn:aws:iam::1:role/mlflow", "RoleSessionName": "mlflow",
        "DurationSeconds": 3600,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("user", "name"), [("ada", "7-ada"), ("a b/é", "7-a-b--"), ("x" * 99, "7-" + "x" * 62)]
)
def test_the_session_is_named_after_job_and_user_as_sts_takes_it(role, sts, user, name):
    role.credentials(user=user, account="vision", job=7)
    assert sts.requests[0]["RoleSessionName"] == name


def test_a_refusal_of_sts_is_an_error_of_ours(role, sts):
    error = {"Error": {"Code": "AccessDenied", "Message": "not authorized"}}
    sts.fault = ClientError({**error, "ResponseMetadata": {"HTTPStatusCode": 403}}, "AssumeRole")
    with pytest.raises(Denied, match="not authorized"):
        role.credentials(user="ada", account="vision", job=7)


def test_the_client_is_made_once(sts):
    made = []
    role = JobRole("arn", lambda: made.append(1) or sts, FakeClock())
    role.connect()
    role.credentials(user="ada", account="vision", job=7)
    assert made == [1]
