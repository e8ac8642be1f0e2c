"""Job roles: who may assume a role, and what the tags of a session let it do."""

from __future__ import annotations

import json
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.contract.local.test_local_iam import Roles, code_of

BUCKET = "lab"
MINE = "arn:aws:s3:::lab/checkpoints/${aws:PrincipalTag/user}/*"
JOB = "arn:aws:iam::123456789012:role/job"
TAGS = {"user": "ada", "account": "vision", "job": "7"}
PRESENT = {
    "StringLike": {f"aws:RequestTag/{key}": "?*" for key in TAGS},
    "ForAllValues:StringEquals": {"aws:TagKeys": sorted(TAGS)},
}
STORAGE = [
    ("Keep", ["s3:GetObject", "s3:PutObject", "s3:DeleteObject"], MINE, {}),
    ("Find", "s3:ListBucket", "arn:aws:s3:::lab",
     {"StringLike": {"s3:prefix": "checkpoints/${aws:PrincipalTag/user}/*"}}),
    ("Uploads", "s3:ListBucketMultipartUploads", "arn:aws:s3:::lab", {}),
    ("Add", "s3:PutObject", "arn:aws:s3:::lab/data/*", {"Null": {"s3:if-none-match": "false"}}),
    ("Parts", "s3:PutObject", "arn:aws:s3:::lab/data/*",
     {"Bool": {"s3:ObjectCreationOperation": "false"}}),
    ("Read", "s3:GetObject", "arn:aws:s3:::lab/data/*", {}),
]  # fmt: skip


@pytest.fixture
def roles(local, launch) -> Roles:
    return Roles(local, launch)


class Jobs:
    """A node whose role may assume the role of jobs."""

    def __init__(self, roles: Roles, *, trust: Any = None, own: Any = None) -> None:
        self.roles, self.local = roles, roles.local
        rows = [("Act", ["sts:AssumeRole", "sts:TagSession"], JOB, {})] if own is None else own
        self.node = roles.make("node", *rows)
        principal = {"AWS": "arn:aws:iam::123456789012:role/node"} if trust is None else trust
        statement = {
            "Effect": "Allow",
            "Principal": principal,
            "Action": ["sts:AssumeRole", "sts:TagSession"],
            "Condition": PRESENT,
        }
        roles.iam.create_role(
            RoleName="job",
            AssumeRolePolicyDocument=json.dumps({"Version": "2012-10-17", "Statement": statement}),
        )
        roles.allow("job", *STORAGE)
        self.local.client("s3").create_bucket(Bucket=BUCKET)

    def assume(self, *, by: str = "", seconds: int = 3600, **tags: str) -> Any:
        sts = self.roles.client("sts", by or self.node)
        return sts.assume_role(
            RoleArn=JOB,
            RoleSessionName="7-ada",
            DurationSeconds=seconds,
            Tags=[{"Key": key, "Value": value} for key, value in tags.items()],
        )["Credentials"]

    def s3(self, **tags: str) -> Any:
        given = self.assume(**{**TAGS, **tags})
        return self.local.client(
            "s3",
            aws_access_key_id=given["AccessKeyId"],
            aws_secret_access_key=given["SecretAccessKey"],
            aws_session_token=given["SessionToken"],
        )


def refusal(call, *arguments, **named) -> str:
    with pytest.raises(ClientError) as caught:
        call(*arguments, **named)
    return str(caught.value)


def test_a_job_writes_below_its_own_users_prefix_and_is_refused_anothers(roles):
    jobs = Jobs(roles)
    ada, ben = jobs.s3(), jobs.s3(user="ben", job="8")
    ben.put_object(Bucket=BUCKET, Key="checkpoints/ben/run/step-1", Body=b"ben's")
    for call, more in (("put_object", {"Body": b"ada's"}), ("delete_object", {})):
        said = refusal(getattr(ada, call), Bucket=BUCKET, Key="checkpoints/ben/run/step-1", **more)
        assert "AccessDenied" in said
        assert "assumed-role/job/7-ada is not authorized to perform: s3:" in said
    assert "AccessDenied" in refusal(
        ada.get_object, Bucket=BUCKET, Key="checkpoints/ben/run/step-1"
    )
    assert (
        ben.get_object(Bucket=BUCKET, Key="checkpoints/ben/run/step-1")["Body"].read() == b"ben's"
    )


def test_another_job_of_the_same_user_reads_and_replaces_her_checkpoints(roles):
    jobs = Jobs(roles)
    jobs.s3().put_object(Bucket=BUCKET, Key="checkpoints/ada/run/step-1", Body=b"7")
    later = jobs.s3(job="9")
    assert later.get_object(Bucket=BUCKET, Key="checkpoints/ada/run/step-1")["Body"].read() == b"7"
    later.put_object(Bucket=BUCKET, Key="checkpoints/ada/run/step-1", Body=b"9")


def test_a_job_lists_its_own_prefix_and_no_other(roles):
    s3 = Jobs(roles).s3()
    s3.list_objects_v2(Bucket=BUCKET, Prefix="checkpoints/ada/run/")
    for prefix in ("checkpoints/ben/", "checkpoints/ad", ""):
        assert "AccessDenied" in refusal(s3.list_objects_v2, Bucket=BUCKET, Prefix=prefix)


def test_a_list_of_unfinished_uploads_has_no_prefix_that_a_policy_could_name(roles):
    jobs = Jobs(roles)
    s3 = jobs.s3()
    s3.list_multipart_uploads(Bucket=BUCKET, Prefix="checkpoints/ada/")
    prefixed = {"StringLike": {"s3:prefix": "checkpoints/ada/*"}}
    roles.allow("job", ("U", "s3:ListBucketMultipartUploads", "arn:aws:s3:::lab", prefixed))
    said = refusal(s3.list_multipart_uploads, Bucket=BUCKET, Prefix="checkpoints/ada/")
    assert "AccessDenied" in said


def test_a_job_adds_to_a_dataset_but_replaces_and_deletes_nothing_of_it(roles):
    s3 = Jobs(roles).s3()
    key = {"Bucket": BUCKET, "Key": "data/names/digits/00000001.json"}
    s3.put_object(**key, Body=b"first", IfNoneMatch="*")
    assert code_of(s3.put_object, **key, Body=b"other", IfNoneMatch="*")[1] == "PreconditionFailed"
    assert "AccessDenied" in refusal(s3.put_object, **key, Body=b"other")
    assert "AccessDenied" in refusal(s3.delete_object, **key)
    assert s3.get_object(**key)["Body"].read() == b"first"


def test_a_large_object_of_a_dataset_is_completed_only_where_there_is_none(roles):
    s3 = Jobs(roles).s3()
    key = {"Bucket": BUCKET, "Key": "data/objects/00/large"}
    upload = {**key, "UploadId": s3.create_multipart_upload(**key)["UploadId"]}
    part = s3.upload_part(**upload, PartNumber=1, Body=b"x")
    done = {"MultipartUpload": {"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]}}
    assert "AccessDenied" in refusal(s3.complete_multipart_upload, **upload, **done)
    s3.complete_multipart_upload(**upload, **done, IfNoneMatch="*")
    assert s3.get_object(**key)["Body"].read() == b"x"


@pytest.mark.parametrize("missing", sorted(TAGS))
def test_a_session_without_one_of_the_three_tags_is_refused(roles, missing):
    tags = {key: value for key, value in TAGS.items() if key != missing}
    said = refusal(Jobs(roles).assume, **tags)
    assert "AccessDenied" in said
    assert f"is not authorized to perform: sts:AssumeRole on resource: {JOB}" in said


def test_a_session_with_a_fourth_tag_is_refused(roles):
    assert "AccessDenied" in refusal(Jobs(roles).assume, **TAGS, admin="yes")


def test_a_session_without_any_tag_is_refused(roles):
    assert "AccessDenied" in refusal(Jobs(roles).assume)


def test_a_role_that_the_trust_policy_does_not_name_is_refused_even_with_every_right(roles):
    jobs = Jobs(roles)
    other = roles.make("other", ("All", "*", "*", {}))
    assert "AccessDenied" in refusal(jobs.assume, by=other, **TAGS)


def test_a_job_can_not_take_the_credentials_of_another_job(roles):
    jobs = Jobs(roles)
    given = jobs.assume(**TAGS)
    sts = jobs.local.client(
        "sts",
        aws_access_key_id=given["AccessKeyId"],
        aws_secret_access_key=given["SecretAccessKey"],
        aws_session_token=given["SessionToken"],
    )
    tags = [{"Key": key, "Value": value} for key, value in {**TAGS, "user": "ben"}.items()]
    said = refusal(sts.assume_role, RoleArn=JOB, RoleSessionName="8-ben", Tags=tags)
    assert "AccessDenied" in said


def test_trust_in_the_account_leaves_the_decision_to_the_callers_own_policy(roles):
    account = {"AWS": "arn:aws:iam::123456789012:root"}
    jobs = Jobs(roles, trust=account)
    assert jobs.assume(**TAGS)
    roles.allow("node")
    assert "AccessDenied" in refusal(jobs.assume, **TAGS)


def test_trust_in_the_role_itself_is_enough_within_the_account(roles):
    assert Jobs(roles, own=[]).assume(**TAGS)


def test_a_service_that_is_trusted_is_no_role(roles):
    jobs = Jobs(roles, trust={"Service": "ec2.amazonaws.com"})
    assert "AccessDenied" in refusal(jobs.assume, **TAGS)


def test_a_role_reached_from_a_roles_session_lasts_an_hour_at_most(roles):
    jobs = Jobs(roles)
    assert "exceeds the 1 hour session limit" in refusal(jobs.assume, seconds=3601, **TAGS)


def test_credentials_of_a_job_end_after_their_hour(roles):
    jobs = Jobs(roles)
    s3 = jobs.s3()
    jobs.local.wall.offset += 3601
    assert "ExpiredToken" in refusal(s3.list_objects_v2, Bucket=BUCKET, Prefix="checkpoints/ada/")
