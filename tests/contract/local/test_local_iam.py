"""IAM of the local cloud: calls are judged by the role whose credentials signed them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from botocore.exceptions import ClientError

CLUSTER = {"Key": "toolkit:cluster", "Value": "demo"}
TAGGED = {"StringEquals": {"aws:ResourceTag/toolkit:cluster": "demo"}}
REQUESTED = {"StringEquals": {"aws:RequestTag/toolkit:cluster": "demo"}}
ANY = "*"
NETWORK = [f"arn:aws:ec2:*:*:{kind}/*" for kind in ("subnet", "security-group")]
CREATED = [
    f"arn:aws:ec2:*:*:{kind}/*" for kind in ("instance", "volume", "network-interface", "fleet")
]
LAUNCH = ["ec2:RunInstances", "ec2:CreateFleet"]
LAUNCHES = [
    ("Use", LAUNCH, [*NETWORK, "arn:aws:ec2:*::image/*"], {}),
    ("Template", LAUNCH, "arn:aws:ec2:*:*:launch-template/*", TAGGED),
    ("Create", LAUNCH, CREATED, REQUESTED),
    ("Tag", "ec2:CreateTags", CREATED,
     {"StringEquals": {**REQUESTED["StringEquals"], "ec2:CreateAction": ["RunInstances",
                                                                       "CreateFleet"]}}),
    ("Pass", "iam:PassRole", "arn:aws:iam::*:role/node",
     {"StringEquals": {"iam:PassedToService": "ec2.amazonaws.com"}}),
]  # fmt: skip


def document(*rows: tuple[str, Any, Any, dict[str, Any]]) -> str:
    """Return a policy of allowing statements."""
    statements = [
        {"Sid": sid, "Effect": "Allow", "Action": action, "Resource": resource}
        | ({"Condition": condition} if condition else {})
        for sid, action, resource, condition in rows
    ]
    return json.dumps({"Version": "2012-10-17", "Statement": statements})


class Roles:
    """Roles with instances that have their credentials."""

    def __init__(self, local, launch) -> None:
        self.local, self.launch = local, launch
        self.iam = local.client("iam")

    def make(self, name: str, *rows: Any) -> str:
        """Make a role, and return an instance that has it."""
        self.iam.create_role(RoleName=name, AssumeRolePolicyDocument="{}")
        self.iam.create_instance_profile(InstanceProfileName=name)
        self.iam.add_role_to_instance_profile(InstanceProfileName=name, RoleName=name)
        self.allow(name, *rows)
        profile = {"IamInstanceProfile": {"Name": name}}
        instance_id = self.launch(**profile)[0]["InstanceId"]
        self.local.settle()
        return instance_id

    def allow(self, name: str, *rows: Any) -> None:
        text = document(*rows or [("Nothing", "sts:GetCallerIdentity", ANY, {})])
        self.iam.put_role_policy(RoleName=name, PolicyName="own", PolicyDocument=text)

    def client(self, service: str, instance_id: str) -> Any:
        return self.local.client(service, **self.local.role_credentials(instance_id))


@pytest.fixture
def roles(local, launch) -> Roles:
    return Roles(local, launch)


def code_of(call, *arguments, **named) -> tuple[int, str]:
    """Return status and code of a call's refusal."""
    with pytest.raises(ClientError) as caught:
        call(*arguments, **named)
    answer = caught.value.response
    return answer["ResponseMetadata"]["HTTPStatusCode"], answer["Error"]["Code"]


CALLS = {
    "ec2": lambda client: client.describe_instances(),
    "s3": lambda client: client.list_objects_v2(Bucket="data"),
    "sts": lambda client: client.get_caller_identity(),
    "secretsmanager": lambda client: client.get_secret_value(SecretId="s"),
}


@pytest.mark.parametrize(
    ("service", "answer"),
    [
        ("ec2", (401, "AuthFailure")),
        ("s3", (403, "InvalidAccessKeyId")),
        ("sts", (403, "InvalidClientTokenId")),
        ("secretsmanager", (400, "UnrecognizedClientException")),
    ],
)
def test_a_key_that_nobody_was_given_is_refused_as_each_service_does(local, service, answer):
    client = local.client(service, aws_access_key_id="ASIANOBODY", aws_secret_access_key="x")
    assert code_of(CALLS[service], client) == answer


@pytest.mark.parametrize(
    ("service", "answer"),
    [
        ("ec2", (400, "RequestExpired")),
        ("s3", (400, "ExpiredToken")),
        ("sts", (403, "ExpiredToken")),
        ("secretsmanager", (400, "ExpiredTokenException")),
    ],
)
def test_credentials_of_an_instance_end_after_six_hours(local, roles, service, answer):
    client = roles.client(service, roles.make("node"))
    local.wall.offset += 6 * 3600 + 1
    assert code_of(CALLS[service], client) == answer


def test_a_session_token_of_another_session_is_refused(local, roles):
    first, second = (local.role_credentials(roles.make(name)) for name in ("one", "two"))
    mixed = {**first, "aws_session_token": second["aws_session_token"]}
    assert code_of(local.client("ec2", **mixed).describe_instances) == (401, "AuthFailure")


def test_the_session_of_an_instance_is_its_role_by_name(roles):
    instance_id = roles.make("node")
    arn = roles.client("sts", instance_id).get_caller_identity()["Arn"]
    assert arn == f"arn:aws:sts::123456789012:assumed-role/node/{instance_id}"


@pytest.mark.parametrize(
    ("service", "answer", "action"),
    [
        ("ec2", (403, "UnauthorizedOperation"), "ec2:DescribeInstances"),
        ("s3", (403, "AccessDenied"), "s3:ListBucket on resource: arn:aws:s3:::data"),
        ("secretsmanager", (400, "AccessDeniedException"), "secretsmanager:GetSecretValue"),
    ],
)
def test_a_denied_call_names_who_what_and_where(roles, service, answer, action):
    instance_id = roles.make("node")
    client = roles.client(service, instance_id)
    with pytest.raises(ClientError) as caught:
        CALLS[service](client)
    response = caught.value.response
    assert (response["ResponseMetadata"]["HTTPStatusCode"], response["Error"]["Code"]) == answer
    message = response["Error"]["Message"]
    assert f"assumed-role/node/{instance_id} is not authorized to perform: {action}" in message


def test_an_action_that_the_mapping_does_not_know_is_refused_even_with_every_right(roles):
    instance_id = roles.make("admin", ("All", "*", "*", {}))
    with pytest.raises(ClientError, match="does not know which rights ec2:DescribeKeyPairs"):
        roles.client("ec2", instance_id).describe_key_pairs()


def test_a_policy_that_can_not_be_judged_refuses_every_call_and_says_why(roles):
    instance_id = roles.make("node", ("Odd", "ec2:*", "*", {"DateLessThan": {"aws:x": "1"}}))
    with pytest.raises(ClientError, match="can't judge a policy of role node: condition operator"):
        roles.client("ec2", instance_id).describe_instances()


def test_a_policy_that_amazon_manages_counts_with_its_own_content(roles):
    instance_id = roles.make("node")
    roles.iam.attach_role_policy(
        RoleName="node", PolicyArn="arn:aws:iam::aws:policy/AmazonSSMManagedInstanceCore"
    )
    roles.local.client("ssm").put_parameter(Name="db", Value="secret", Type="String")
    ssm = roles.client("ssm", instance_id)
    assert ssm.get_parameter(Name="db")["Parameter"]["Value"] == "secret"
    assert code_of(ssm.send_command, DocumentName="AWS-RunShellScript")[1] == (
        "AccessDeniedException"
    )


class Launches:
    """A role that may launch from a tagged template, and the parts of a launch."""

    def __init__(self, roles: Roles, ec2: Any, subnet: str) -> None:
        self.roles, self.subnet = roles, subnet
        roles.make("node")
        self.client = roles.client("ec2", roles.make("head", *LAUNCHES))
        profile = roles.iam.get_instance_profile(InstanceProfileName="node")["InstanceProfile"]
        data = {"ImageId": roles.local.image, "IamInstanceProfile": {"Arn": profile["Arn"]}}
        tags = [{"ResourceType": kind, "Tags": [CLUSTER]}
                for kind in ("instance", "volume", "network-interface")]  # fmt: skip
        data["TagSpecifications"] = tags
        for name, given in (("ours", [CLUSTER]), ("theirs", [])):
            specification = [{"ResourceType": "launch-template", "Tags": given}] if given else []
            ec2.create_launch_template(
                LaunchTemplateName=name, LaunchTemplateData=data, TagSpecifications=specification
            )

    def run(self, template: str = "ours", **more: Any) -> Any:
        request = {"MinCount": 1, "MaxCount": 1, "InstanceType": "g5.xlarge"} | more
        return self.client.run_instances(
            LaunchTemplate={"LaunchTemplateName": template}, SubnetId=self.subnet, **request
        )

    def fleet(self, template: str = "ours") -> Any:
        specification = {"LaunchTemplateName": template, "Version": "$Latest"}
        override = {"InstanceType": "g5.xlarge", "SubnetId": self.subnet}
        target = {"TotalTargetCapacity": 1, "DefaultTargetCapacityType": "on-demand"}
        return self.client.create_fleet(
            Type="instant",
            LaunchTemplateConfigs=[
                {"LaunchTemplateSpecification": specification, "Overrides": [override]}
            ],
            TargetCapacitySpecification=target,
            TagSpecifications=[
                {"ResourceType": kind, "Tags": [CLUSTER]} for kind in ("fleet", "instance")
            ],
        )


@pytest.fixture
def launches(roles, ec2, subnet) -> Launches:
    return Launches(roles, ec2, subnet)


def test_a_launch_within_the_policy_is_carried_out_by_call_and_by_fleet(launches):
    assert launches.run()["Instances"]
    assert launches.fleet()["Instances"]


def test_a_launch_from_a_template_without_the_tag_is_denied_and_starts_nothing(launches, local):
    count = len(local.instances())
    for call in (launches.run, launches.fleet):
        assert code_of(call, "theirs") == (403, "UnauthorizedOperation")
    assert len(local.instances()) == count


def test_tags_of_the_call_win_over_the_templates_before_they_are_judged(launches):
    other = [{"ResourceType": "instance", "Tags": [{**CLUSTER, "Value": "another"}]}]
    assert code_of(launches.run, TagSpecifications=other) == (403, "UnauthorizedOperation")


def test_a_launch_with_a_role_that_may_not_be_passed_is_denied(launches):
    with pytest.raises(ClientError, match=r"iam:PassRole on resource: \S+:role/head"):
        launches.run(IamInstanceProfile={"Name": "head"})


def test_the_first_spot_launch_needs_the_right_to_make_the_spot_role(launches):
    spot = {"InstanceMarketOptions": {"MarketType": "spot"}}
    kinds = [*CREATED, "arn:aws:ec2:*:*:spot-instances-request/*"]
    rows = [("Spot", "ec2:RunInstances", kinds, {}), *LAUNCHES]
    launches.roles.allow("head", *rows)
    assert code_of(launches.run, **spot)[1] == "AuthFailure.ServiceLinkedRoleCreationNotPermitted"
    role = ("Role", "iam:CreateServiceLinkedRole", "*",
            {"StringEquals": {"iam:AWSServiceName": "spot.amazonaws.com"}})  # fmt: skip
    launches.roles.allow("head", *rows, role)
    assert launches.run(**spot)["Instances"]
    launches.roles.allow("head", *rows)
    assert launches.run(**spot)["Instances"], "the account has the role from then on"


def test_an_instance_is_terminated_and_tagged_by_its_own_tags_alone(roles, launch):
    tags = [{"ResourceType": "instance", "Tags": [CLUSTER]}]
    ours, theirs = (launch(TagSpecifications=given)[0]["InstanceId"] for given in (tags, None))
    keys = {"ForAllValues:StringLike": {"aws:TagKeys": ["toolkit:node"]}}
    instances = "arn:aws:ec2:*:*:instance/*"
    head = roles.client(
        "ec2",
        roles.make("head", ("End", "ec2:TerminateInstances", instances, TAGGED),
                   ("Tag", "ec2:CreateTags", instances, {**TAGGED, **keys})),
    )  # fmt: skip
    node = {"Key": "toolkit:node", "Value": "gpu-001"}
    denied = (403, "UnauthorizedOperation")
    assert code_of(head.create_tags, Resources=[theirs], Tags=[node]) == denied
    assert code_of(head.create_tags, Resources=[ours], Tags=[CLUSTER]) == denied
    head.create_tags(Resources=[ours], Tags=[node])
    assert code_of(head.terminate_instances, InstanceIds=[ours, theirs]) == denied
    head.terminate_instances(InstanceIds=[ours])
    assert code_of(head.terminate_instances, InstanceIds=["i-0123456789abcdef0"]) == (
        400, "InvalidInstanceID.NotFound"
    )  # fmt: skip


OBJECTS = ["s3:GetObject", "s3:PutObject", "s3:DeleteObject"]


def test_s3_is_judged_by_bucket_key_and_prefix(roles):
    roles.local.client("s3").create_bucket(Bucket="data")
    prefix = {"StringLike": {"s3:prefix": "mine/*"}}
    s3 = roles.client(
        "s3",
        roles.make("node", ("Keep", OBJECTS, "arn:aws:s3:::data/mine/*", {}),
                   ("Find", "s3:ListBucket", "arn:aws:s3:::data", prefix)),
    )  # fmt: skip
    s3.put_object(Bucket="data", Key="mine/a b&c", Body=b"1")
    assert s3.get_object(Bucket="data", Key="mine/a b&c")["Body"].read() == b"1"
    assert s3.list_objects_v2(Bucket="data", Prefix="mine/")["KeyCount"] == 1
    denied = (403, "AccessDenied")
    assert code_of(s3.list_objects_v2, Bucket="data", Prefix="yours/") == denied
    assert code_of(s3.put_object, Bucket="data", Key="yours/x", Body=b"") == denied
    names = [{"Key": key} for key in ("mine/a b&c", "yours/x")]
    assert code_of(s3.delete_objects, Bucket="data", Delete={"Objects": names}) == denied
    s3.delete_objects(Bucket="data", Delete={"Objects": names[:1]})
    copy = {"CopySource": {"Bucket": "data", "Key": "yours/x"}}
    assert code_of(s3.copy_object, Bucket="data", Key="mine/x", **copy) == denied


def test_an_upload_in_parts_needs_rights_by_its_own_names(roles):
    roles.local.client("s3").create_bucket(Bucket="data")
    instance_id = roles.make("node", ("Put", "s3:PutObject", "arn:aws:s3:::data/*", {}))
    s3 = roles.client("s3", instance_id)
    upload = s3.create_multipart_upload(Bucket="data", Key="k")["UploadId"]
    target = {"Bucket": "data", "Key": "k", "UploadId": upload}
    s3.upload_part(**target, PartNumber=1, Body=b"1")
    assert code_of(s3.list_parts, **target) == (403, "AccessDenied")
    assert code_of(s3.abort_multipart_upload, **target) == (403, "AccessDenied")
    assert code_of(s3.list_multipart_uploads, Bucket="data") == (403, "AccessDenied")


def test_a_missing_object_is_absent_only_for_who_may_list_the_bucket(roles):
    roles.local.client("s3").create_bucket(Bucket="data")
    read = ("Read", "s3:GetObject", "arn:aws:s3:::data/*", {})
    s3 = roles.client("s3", roles.make("node", read))
    assert code_of(s3.get_object, Bucket="data", Key="no") == (403, "AccessDenied")
    assert code_of(s3.head_object, Bucket="data", Key="no") == (403, "403")
    roles.allow("node", read, ("List", "s3:ListBucket", "arn:aws:s3:::data", {}))
    assert code_of(s3.get_object, Bucket="data", Key="no") == (404, "NoSuchKey")
    assert code_of(s3.head_object, Bucket="data", Key="no") == (404, "404")


def test_the_record_counts_calls_by_role_and_lists_rights_that_nobody_used(roles, control):
    rows = (("See", ["ec2:DescribeInstances", "ec2:DescribeVolumes"], "*", {}),)
    ec2 = roles.client("ec2", roles.make("head", *rows))
    for _ in range(3):
        ec2.describe_instances()
    code_of(ec2.describe_images)
    record = control.get("rights")
    assert [
        (call["role"], call["action"], call["allowed"], call["statement"], call["count"])
        for call in record["calls"]
    ] == [
        ("head", "ec2:DescribeImages", False, "", 1),
        ("head", "ec2:DescribeInstances", True, "own/See", 3),
    ]
    assert record["unused"] == {
        "head": [{"policy": "own", "statement": "See", "action": "ec2:DescribeVolumes",
                  "resource": "*"}]
    }  # fmt: skip


def stack_of(action: str, *, managed: bool) -> str:
    """Return a template with one role that may do one thing."""
    statement = {"Effect": "Allow", "Action": action, "Resource": "*"}
    properties = {
        "AssumeRolePolicyDocument": {"Version": "2012-10-17", "Statement": []},
        "Policies": [{"PolicyName": "own", "PolicyDocument": {"Statement": [statement]}}],
        "ManagedPolicyArns": ["arn:aws:iam::aws:policy/AmazonSSMManagedInstanceCore"][:managed],
    }
    return json.dumps({"Resources": {"Role": {"Type": "AWS::IAM::Role", "Properties": properties}}})


def test_a_role_of_a_stack_has_the_policies_of_its_template_after_each_update(local):
    """Attach managed policies, and change both kinds in place."""
    cloudformation, iam = local.client("cloudformation"), local.client("iam")

    def finished(state: str) -> bool:
        stacks = cloudformation.describe_stacks(StackName="s")["Stacks"]
        return stacks[0]["StackStatus"] == state

    def policies() -> tuple[str, list[str]]:
        (role,) = iam.list_roles()["Roles"]
        name = role["RoleName"]
        document = iam.get_role_policy(RoleName=name, PolicyName="own")["PolicyDocument"]
        attached = iam.list_attached_role_policies(RoleName=name)["AttachedPolicies"]
        return document["Statement"][0]["Action"], [item["PolicyName"] for item in attached]

    body = stack_of("ec2:DescribeInstances", managed=True)
    cloudformation.create_stack(StackName="s", TemplateBody=body)
    local.until(lambda: finished("CREATE_COMPLETE"))
    assert policies() == ("ec2:DescribeInstances", ["AmazonSSMManagedInstanceCore"])
    body = stack_of("ec2:DescribeImages", managed=False)
    cloudformation.update_stack(StackName="s", TemplateBody=body)
    local.until(lambda: finished("UPDATE_COMPLETE"))
    assert policies() == ("ec2:DescribeImages", [])
    cloudformation.delete_stack(StackName="s")
    local.until(lambda: not iam.list_roles()["Roles"])


def bucket_policy(*statements: dict[str, Any]) -> str:
    return json.dumps({"Version": "2012-10-17", "Statement": list(statements)})


def test_a_buckets_deny_wins_over_a_roles_own_rights(roles):
    """Deny by the ARN of the caller's role; another role goes on."""
    admin = roles.local.client("s3")
    admin.create_bucket(Bucket="data")
    everything = ("All", "s3:*", "*", {})
    bounded, free = (roles.client("s3", roles.make(name, everything)) for name in ("one", "two"))
    policy = bucket_policy(
        {
            "Sid": "NoBundles",
            "Effect": "Deny",
            "Principal": "*",
            "Action": "s3:PutObject",
            "Resource": "arn:aws:s3:::data/bundle/*",
            "Condition": {"ArnEquals": {"aws:PrincipalArn": "arn:aws:iam::123456789012:role/one"}},
        }
    )
    admin.put_bucket_policy(Bucket="data", Policy=policy)
    for key in ("bundle/x", "other/x"):
        free.put_object(Bucket="data", Key=key, Body=b"")
    bounded.put_object(Bucket="data", Key="other/x", Body=b"")
    with pytest.raises(ClientError, match="explicit deny in a resource-based policy"):
        bounded.put_object(Bucket="data", Key="bundle/x", Body=b"")


@pytest.mark.parametrize(
    ("principal", "allowed"),
    [
        ({"AWS": "arn:aws:iam::123456789012:role/node"}, True),
        ("*", True),
        ({"AWS": "arn:aws:iam::123456789012:role/other"}, False),
        ({"AWS": "arn:aws:iam::123456789012:root"}, False),
    ],
    ids=["the role", "everybody", "another role", "the account"],
)
def test_a_buckets_allow_is_enough_where_it_names_the_caller_itself(roles, principal, allowed):
    """Leave it to the caller's policies where the account is named."""
    admin = roles.local.client("s3")
    admin.create_bucket(Bucket="data")
    statement = {"Effect": "Allow", "Principal": principal, "Action": "s3:PutObject",
                 "Resource": "arn:aws:s3:::data/*"}  # fmt: skip
    admin.put_bucket_policy(Bucket="data", Policy=bucket_policy(statement))
    node = roles.client("s3", roles.make("node"))
    if allowed:
        node.put_object(Bucket="data", Key="x", Body=b"")
    else:
        assert code_of(node.put_object, Bucket="data", Key="x", Body=b"") == (403, "AccessDenied")


def test_a_permissions_boundary_bounds_what_a_roles_policies_allow(roles):
    both = ("See", ["ec2:DescribeInstances", "ec2:DescribeImages"], "*", {})
    ec2 = roles.client("ec2", roles.make("node", both))
    boundary = roles.iam.create_policy(
        PolicyName="limits", PolicyDocument=document(("Few", "ec2:DescribeInstances", "*", {}))
    )["Policy"]["Arn"]
    ec2.describe_images()
    roles.iam.put_role_permissions_boundary(RoleName="node", PermissionsBoundary=boundary)
    ec2.describe_instances()
    assert code_of(ec2.describe_images) == (403, "UnauthorizedOperation")
    roles.iam.delete_role_permissions_boundary(RoleName="node")
    ec2.describe_images()


def test_to_delete_a_version_is_a_right_of_its_own(roles):
    admin = roles.local.client("s3")
    admin.create_bucket(Bucket="data")
    admin.put_bucket_versioning(Bucket="data", VersioningConfiguration={"Status": "Enabled"})
    version = admin.put_object(Bucket="data", Key="k", Body=b"")["VersionId"]
    objects = "arn:aws:s3:::data/*"
    s3 = roles.client("s3", roles.make("node", ("Delete", "s3:DeleteObject", objects, {})))
    batch = {"Objects": [{"Key": "k", "VersionId": version}]}
    denied = (403, "AccessDenied")
    assert code_of(s3.delete_object, Bucket="data", Key="k", VersionId=version) == denied
    assert code_of(s3.delete_objects, Bucket="data", Delete=batch) == denied
    s3.delete_object(Bucket="data", Key="k")
    roles.allow("node", ("Forget", "s3:DeleteObjectVersion", objects, {}))
    s3.delete_objects(Bucket="data", Delete=batch)
    assert "Versions" not in admin.list_object_versions(Bucket="data")


def test_a_fleet_itself_is_judged_by_the_few_keys_that_the_reference_lists(launches):
    """Refuse a fleet whose policy asks for a key without a value.

    RunInstances has it, so the same condition is good there.
    """
    tokens = {"StringEquals": {**REQUESTED["StringEquals"], "ec2:MetadataHttpTokens": "optional"}}
    instances = "arn:aws:ec2:*:*:instance/*"
    rows = [row for row in LAUNCHES if row[0] != "Create"]
    rows += [
        ("Rest", LAUNCH, [kind for kind in CREATED if kind != instances], REQUESTED),
        ("Run", "ec2:RunInstances", instances, tokens),
    ]
    launches.roles.allow("head", *rows, ("Fleet", "ec2:CreateFleet", instances, REQUESTED))
    assert launches.fleet()["Instances"]
    launches.roles.allow("head", *rows, ("Fleet", "ec2:CreateFleet", instances, tokens))
    assert code_of(launches.fleet) == (403, "UnauthorizedOperation")


def test_a_fleet_is_judged_by_the_type_of_each_override(launches):
    rows = [row for row in LAUNCHES if row[0] != "Create"]
    other = {**REQUESTED["StringEquals"], "ec2:InstanceType": "c7i.large"}
    run = ("Create", "ec2:RunInstances", CREATED, REQUESTED)
    instances = "arn:aws:ec2:*:*:instance/*"
    fleet = ("Fleet", "ec2:CreateFleet", [kind for kind in CREATED if kind != instances], REQUESTED)
    typed = ("Typed", "ec2:CreateFleet", instances, {"StringEquals": other})
    launches.roles.allow("head", *rows, run, fleet, typed)
    assert code_of(launches.fleet) == (403, "UnauthorizedOperation")
