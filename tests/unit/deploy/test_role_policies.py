"""Laws on the rights of the cluster's roles, evaluated as AWS does."""

from __future__ import annotations

import json
import re
from functools import cache

import boto3
import pytest
import yaml
from moto.iam.aws_managed_policies import aws_managed_policies_data

from slurmplugins.cloud import ec2_messages
from slurmplugins.model import hostlist, records
from slurmplugins.model.instance import Lifecycle, Offering
from slurmplugins.model.launch import LaunchRequest
from tests.unit.deploy.samples import ACCOUNT, FACTS, example
from toolkit.deploy import names
from toolkit.deploy.stack import images_template, stack_template
from toolkit.local.aws.iam import ec2_requests, policy
from toolkit.local.aws.iam.policy import Request

OURS = "i-0123456789abcdef0"


class Loader(yaml.CSafeLoader):
    """A YAML loader that reads CloudFormation's !Ref, !Sub and !GetAtt as text."""


Loader.add_multi_constructor("!", lambda _loader, _tag, node: node.value)


def fill_in(text):
    """Replace partition and account; other references become their own names."""
    values = {"AWS::Partition": "aws", "AWS::AccountId": ACCOUNT}
    filled = re.sub(r"\$\{([^}!]*)\}", lambda match: values.get(match[1], match[1]), text)
    return filled.replace("${!", "${")


@cache
def statements(text, role):
    """Return every statement of a role's policies, with those that Amazon manages."""
    read = []
    resources = yaml.load(text, Loader)["Resources"]  # noqa: S506 - a safe loader
    properties = resources[role]["Properties"]
    apart = [
        item["Properties"] for item in resources.values()
        if item["Type"] == "AWS::IAM::Policy" and role in item["Properties"]["Roles"]
    ]  # fmt: skip
    for inline in [*properties["Policies"], *apart]:
        for item in inline["PolicyDocument"]["Statement"]:
            resources = item["Resource"]
            listed = resources if isinstance(resources, list) else [resources]
            item["Resource"] = [fill_in(resource) for resource in listed]
        read += policy.read(inline["PolicyName"], inline["PolicyDocument"])
    amazons = json.loads(aws_managed_policies_data)
    for arn in properties.get("ManagedPolicyArns", ()):
        name = arn.rsplit("/", 1)[1]
        read += policy.read(name, amazons[name]["Document"])
    return tuple(read)


def allowed(statements, request):
    return policy.decide(statements, request).allowed


class Roles:
    """Roles of one example's stack.

    `head` and `compute` say if a role may call an action.
    """

    def __init__(self, name) -> None:
        self.config = example(name)
        self.cluster, self.region = self.config.cluster, str(self.config.aws.region)
        self.text = stack_template(self.config, FACTS)
        self.types = sorted(
            {item.type for pool in self.config.pools.values() for item in pool.offerings}
        )

    def head(self, action, resource, context=None):
        request = Request(action, resource, context or {})
        return allowed(statements(self.text, "HeadRole"), request)

    def compute(self, action, resource, context=None):
        request = Request(action, resource, context or {})
        return allowed(statements(self.text, "ComputeRole"), request)

    def arn(self, kind, name="*", *, account=ACCOUNT, service="ec2", region=None):
        return (
            f"arn:aws:{service}:{self.region if region is None else region}:{account}:{kind}/{name}"
        )

    def instance(self):
        return self.arn("instance", OURS)

    def tagged(self, **changes):
        """Return a compute node's tags in this cluster, with changes.

        A tag that is changed to None is left out.
        """
        tags = {"toolkit:cluster": self.cluster, "toolkit:role": "compute"} | changes
        return {f"aws:ResourceTag/{key}": value for key, value in tags.items() if value is not None}


@pytest.fixture(params=["local", "aws"])
def roles(request):
    return Roles(request.param)


CLUSTER, ROLE = "toolkit:cluster", "toolkit:role"
NOT_OURS = [
    {CLUSTER: "another"},
    {CLUSTER: None},
    {ROLE: "head"},
    {ROLE: "builder"},
    {ROLE: None},
    {CLUSTER: None, ROLE: None},
]
MOVE = {"aws:TagKeys": ("toolkit:node", "toolkit:order", "toolkit:order.2")}


@pytest.mark.parametrize("action", ["ec2:TerminateInstances", "ec2:GetConsoleOutput"])
@pytest.mark.parametrize("tags", NOT_OURS, ids=str)
def test_the_head_node_terminates_and_reads_compute_nodes_of_its_own_cluster_only(
    roles, action, tags
):
    """Refuse other clusters' instances, the head node, and instances without both tags."""
    assert roles.head(action, roles.instance(), roles.tagged())
    assert not roles.head(action, roles.instance(), roles.tagged(**tags))


@pytest.mark.parametrize("tags", NOT_OURS, ids=str)
def test_the_head_node_tags_instances_of_its_own_cluster_only(roles, tags):
    """Refuse tags on foreign instances.

    Otherwise the head node could tag a foreign instance as its own and terminate it.
    """
    assert roles.head("ec2:CreateTags", roles.instance(), roles.tagged() | MOVE)
    assert not roles.head("ec2:CreateTags", roles.instance(), roles.tagged(**tags) | MOVE)


@pytest.mark.parametrize(
    "key", ["toolkit:cluster", "toolkit:role", "Name", "toolkit:price", "toolkit:nodes"]
)
def test_only_the_node_tags_of_a_running_instance_can_be_changed(roles, key):
    keys = {"aws:TagKeys": ("toolkit:node", key), f"aws:RequestTag/{key}": roles.cluster}
    assert not roles.head("ec2:CreateTags", roles.instance(), roles.tagged() | keys)
    assert not roles.head("ec2:DeleteTags", roles.instance(), roles.tagged() | keys)


@pytest.mark.parametrize(
    "kind", ["fleet", "instance", "volume", "network-interface", "spot-instances-request"]
)
@pytest.mark.parametrize("call", ["RunInstances", "CreateFleet"])
def test_a_launch_tags_its_resources_with_its_own_cluster_only(roles, kind, call):
    """Refuse a launch that tags an instance with another cluster."""

    def tags(**context):
        request_context = {"aws:TagKeys": ("toolkit:cluster",), **context}
        return roles.head("ec2:CreateTags", roles.arn(kind), request_context)

    own_tags, name = requested(roles), {"ec2:CreateAction": call}
    assert tags(**own_tags, **name)
    for changes in NOT_OURS:
        assert not tags(**requested(roles, **changes), **name), changes
    assert not tags(**own_tags), "not while launching"
    assert not tags(**own_tags, **{"ec2:CreateAction": "CreateVolume"})


def requested(roles, **changes):
    """Return the tags that a launch gives, as condition keys."""
    return {
        key.replace("aws:ResourceTag/", "aws:RequestTag/"): value
        for key, value in roles.tagged(**changes).items()
    }


@pytest.mark.parametrize("call", ["RunInstances", "CreateFleet"])
@pytest.mark.parametrize("tags", NOT_OURS, ids=str)
def test_what_a_launch_creates_is_a_compute_node_of_its_own_cluster(roles, call, tags):
    """Refuse an instance that is tagged as a head or a builder."""
    facts = {"ec2:InstanceType": roles.types[0], "ec2:MetadataHttpTokens": "required"}
    for kind in ("instance", "volume", "network-interface", "fleet"):
        assert roles.head(f"ec2:{call}", roles.arn(kind), requested(roles) | facts), kind
        assert not roles.head(f"ec2:{call}", roles.arn(kind), requested(roles, **tags) | facts)


def test_a_launch_is_of_a_listed_type_and_needs_tokens_for_metadata(roles):
    def may(call, **facts):
        context = {f"ec2:{key}": value for key, value in facts.items()}
        return roles.head(f"ec2:{call}", roles.arn("instance"), requested(roles) | context)

    for kind in roles.types:
        assert may("RunInstances", InstanceType=kind, MetadataHttpTokens="required")
        assert may("CreateFleet", InstanceType=kind)
    listed = roles.types[0]
    assert not may("RunInstances", InstanceType="u-24tb1.metal", MetadataHttpTokens="required")
    assert not may("RunInstances", MetadataHttpTokens="required")
    assert not may("RunInstances", InstanceType=listed, MetadataHttpTokens="optional")
    assert not may("RunInstances", InstanceType=listed)
    assert not may("CreateFleet", InstanceType="u-24tb1.metal")
    assert may("CreateFleet"), "the type may stand in the template; RunInstances has it"


def resources_of(roles, arguments, template_tags):
    """Return each resource of a launch with the context that EC2 evaluates.

    `template_tags` are the tags that the launch template adds, by kind of resource.
    """
    subnet = roles.arn("subnet", next(iter(subnets(roles))))
    named_resources = {
        item["ResourceType"]: {tag["Key"]: tag["Value"] for tag in item["Tags"]}
        for item in arguments["TagSpecifications"]
    }
    fleet = "LaunchTemplateConfigs" in arguments
    tagged_resources = {"instance", "volume", "network-interface", *named_resources}
    for kind in tagged_resources:
        tags = template_tags.get(kind, {}) | named_resources.get(kind, {})
        context = {f"aws:RequestTag/{key}": value for key, value in tags.items()}
        if kind == "instance":
            context["ec2:InstanceType"] = roles.types[0]
        if kind == "instance" and not fleet:
            context["ec2:MetadataHttpTokens"] = "required"
        yield kind, roles.arn(kind), context
    if fleet and "SpotOptions" in arguments:
        yield "spot", roles.arn("spot-instances-request"), {}
    yield "template", roles.arn("launch-template", "lt-1"), roles.tagged()
    yield "image", roles.arn("image", FACTS.compute_image, account=""), {}
    yield "subnet", subnet, {}
    yield "group", roles.arn("security-group", "ComputeGroup.GroupId"), {}


def subnets(roles):
    stack_resources = yaml.load(roles.text, Loader)["Resources"]  # noqa: S506 - a safe loader
    return [name for name, item in stack_resources.items() if item["Type"] == "AWS::EC2::Subnet"]


def template_tags(roles):
    stack_resources = yaml.load(roles.text, Loader)["Resources"]  # noqa: S506 - a safe loader
    data = next(
        item["Properties"]["LaunchTemplateData"]
        for item in stack_resources.values()
        if item["Type"] == "AWS::EC2::LaunchTemplate"
    )
    return {
        item["ResourceType"]: {tag["Key"]: tag["Value"] for tag in item["Tags"]}
        for item in data["TagSpecifications"]
    }


def launch_request(cluster, lifecycle):
    """Return slurm-resume's request for two nodes of a pool with two types."""
    first_offering, second_offering = (
        Offering(kind, lifecycle, "us-east-1a", "1.0") for kind in ("g5.xlarge", "g6.xlarge")
    )
    nodes = hostlist.expand("gpu-[001-002]")
    template = f"{cluster}-gpu"
    return LaunchRequest(
        "a1",
        cluster,
        "gpu",
        "spot",
        template,
        "subnet-a",
        first_offering,
        nodes,
        others=(second_offering,),
    )


@pytest.mark.parametrize("lifecycle", [Lifecycle.SPOT, Lifecycle.ON_DEMAND])
@pytest.mark.parametrize("call", ["RunInstances", "CreateFleet"])
def test_the_launch_calls_of_resume_are_allowed_for_the_own_cluster_only(roles, call, lifecycle):
    """Allow the exact request that slurm-resume sends, for this cluster only."""
    build = ec2_messages.run_instances if call == "RunInstances" else ec2_messages.create_fleet

    def refused(cluster):
        arguments = build(launch_request(cluster=cluster, lifecycle=lifecycle))
        tags = template_tags(roles) if cluster == roles.cluster else {}
        refusals = []
        for name, resource, context in resources_of(roles, arguments, tags):
            if not roles.head(f"ec2:{call}", resource, context):
                refusals.append(name)
            tagged = {key for key in context if key.startswith("aws:RequestTag/")}
            call_context = context | {"ec2:CreateAction": call}
            if tagged and not roles.head("ec2:CreateTags", resource, call_context):
                refusals.append(f"tags of {name}")
        return set(refusals)

    assert refused(roles.cluster) == set()
    assert {"instance", "tags of instance"} <= refused("another")


@pytest.mark.parametrize("call", ["ec2:RunInstances", "ec2:CreateFleet"])
def test_a_launch_uses_network_image_and_templates_of_its_own_cluster_only(roles, call):
    own_tags = roles.tagged()
    assert roles.head(call, roles.arn("launch-template", "lt-1"), own_tags)
    assert not roles.head(
        call, roles.arn("launch-template", "lt-1"), roles.tagged(**{CLUSTER: "b"})
    )
    assert not roles.head(call, roles.arn("launch-template", "lt-1"))
    for kind in ("subnet", "security-group", "image", "capacity-reservation", "placement-group"):
        assert not roles.head(call, roles.arn(kind, "another"), own_tags), kind
    assert not roles.head(call, roles.arn("image", FACTS.head_image, account=""), own_tags)
    for kind in ("instance", "volume", "network-interface", "fleet"):
        assert not roles.head(call, roles.arn(kind)), "without a tag"
        foreign_arn = roles.arn(kind, region="eu-north-1")
        assert not roles.head(call, foreign_arn, requested(roles))


def test_the_head_node_passes_only_the_compute_role_and_only_to_ec2(roles):
    to_ec2 = {"iam:PassedToService": "ec2.amazonaws.com"}
    assert roles.head("iam:PassRole", "ComputeRole.Arn", to_ec2)
    assert not roles.head("iam:PassRole", "HeadRole.Arn", to_ec2)
    assert not roles.head("iam:PassRole", f"arn:aws:iam::{ACCOUNT}:role/Admin", to_ec2)
    assert not roles.head(
        "iam:PassRole", "ComputeRole.Arn", {"iam:PassedToService": "lambda.amazonaws.com"}
    )
    assert not roles.head("iam:PassRole", "ComputeRole.Arn")


@pytest.mark.parametrize("service", ["spot", "ec2fleet", "autoscaling", "iam"])
def test_the_head_node_creates_the_service_linked_role_of_spot_only(roles, service):
    """Refuse all others: EC2 needs no such role for instant fleets."""
    name = f"{service}.amazonaws.com"
    resource = f"arn:aws:iam::{ACCOUNT}:role/aws-service-role/{name}/AWSServiceRole"
    right = roles.head("iam:CreateServiceLinkedRole", resource, {"iam:AWSServiceName": name})
    assert right == (service == "spot")


@cache
def operations(service):
    client = boto3.client(
        service, region_name="us-east-1", aws_access_key_id="x", aws_secret_access_key="x"
    )
    return tuple(client.meta.service_model.operation_names)


def rights(roles, role, service):
    """Return the operations of a service that a role may call.

    Each operation is tried on several resources, in the context that allows most.
    """
    allowed_pairs = set()
    kind = {"iam": "role"}.get(service, "instance")
    context = roles.tagged() | {
        **requested(roles),
        "aws:RequestedRegion": roles.region,
        "ec2:CreateAction": "RunInstances",
        "ec2:InstanceType": roles.types[0],
        "ec2:MetadataHttpTokens": "required",
        "iam:PassedToService": "ec2.amazonaws.com",
    }
    places = ["*", roles.arn(kind, service=service), "ComputeRole.Arn", "SlurmKey", "Bucket.Arn"]
    is_allowed = roles.head if role == "head" else roles.compute
    for operation in (*operations(service), *(["PassRole"] if service == "iam" else [])):
        if any(is_allowed(f"{service}:{operation}", resource, context) for resource in places):
            allowed_pairs.add(operation)
    return allowed_pairs


def test_a_compute_node_has_no_right_in_ec2_or_iam(roles):
    """Allow no operation on any resource, because users may become root there."""
    assert rights(roles, "compute", "ec2") == rights(roles, "compute", "iam") == set()
    assert rights(roles, "compute", "secretsmanager") == {"GetSecretValue"}


def test_the_head_node_has_the_listed_rights_in_ec2_only(roles):
    assert rights(roles, "head", "ec2") == {
        "DescribeInstances", "DescribeInstanceStatus", "DescribeSpotInstanceRequests",
        "DescribeSpotPriceHistory",
        "RunInstances", "CreateFleet", "CreateTags",
        "TerminateInstances", "GetConsoleOutput",
    }  # fmt: skip
    assert rights(roles, "head", "iam") == {"PassRole"}


def test_the_head_node_may_ask_for_places_only_where_slurm_takes_them():
    """Allow it from Slurm 25.11 on, with a placement group."""
    roles = Roles("aws")
    pools = {
        name: pool.model_copy(update={"placement_group": True})
        for name, pool in roles.config.pools.items()
    }
    slurm = roles.config.slurm.model_copy(update={"version": "25.11"})
    config = roles.config.model_copy(update={"pools": pools, "slurm": slurm})
    before = rights(roles, "head", "ec2")
    roles.text = stack_template(config, FACTS)
    more = rights(roles, "head", "ec2") - before
    assert more == {"DescribeInstanceTopology"}
    assert more <= ec2_requests.WITHOUT_RESOURCE  # the local cloud judges the call too


def test_the_head_node_describes_instances_of_its_own_region_only(roles):
    for region, right in ((roles.region, True), ("eu-north-1", False)):
        assert roles.head("ec2:DescribeInstances", "*", {"aws:RequestedRegion": region}) == right


@pytest.mark.parametrize(
    "key", ["bundle/x.zip", "ledger/1.jsonl", "status/head.json", "logs/x", ""]
)
def test_a_compute_node_has_no_access_to_the_head_nodes_objects(roles, key):
    for action in ("s3:GetObject", "s3:PutObject", "s3:DeleteObject"):
        assert not roles.compute(action, f"Bucket.Arn/{key}")


def test_the_head_node_deletes_no_ledger_object_and_writes_no_bundle(roles):
    """Protect the records of cost, and the code that root runs."""
    assert roles.head("s3:PutObject", "Bucket.Arn/ledger/1.jsonl")
    assert roles.head("s3:GetObject", "Bucket.Arn/bundle/x.zip")
    for key in ("ledger/1.jsonl", "logs/x", "status/head.json", "bundle/x.zip"):
        assert not roles.head("s3:DeleteObject", f"Bucket.Arn/{key}")
    assert not roles.head("s3:PutObject", "Bucket.Arn/bundle/x.zip")
    assert not roles.head("s3:GetObject", "arn:aws:s3:::anothers/ledger/1.jsonl")


def test_the_head_node_adds_backups_and_reads_and_deletes_none(roles):
    """Protect what was saved from who becomes root on the head."""
    bucket = f"arn:aws:s3:::{names.backup_bucket(roles.config, ACCOUNT)}"
    backup = f"{bucket}/backups/2026-11-25T22-20-00Z/mlflow.sql.gz"
    assert roles.head("s3:PutObject", backup)
    assert not roles.head("s3:PutObject", f"{bucket}/records/ledger/instances/i-1.json")
    for action in ("s3:GetObject", "s3:DeleteObject", "s3:DeleteObjectVersion"):
        assert not roles.head(action, backup)
    assert not roles.head("s3:ListBucket", bucket)
    assert not roles.compute("s3:GetObject", backup)
    assert roles.head("s3:GetObject", "Bucket.Arn/restore/2026-11-25T22-20-00Z/manifest.json")
    assert not roles.head("s3:PutObject", "Bucket.Arn/restore/2026-11-25T22-20-00Z/manifest.json")


def test_the_head_node_adds_records_and_replaces_reads_and_deletes_none(roles):
    """Protect the evidence from who becomes root on the head."""
    bucket = f"arn:aws:s3:::{names.backup_bucket(roles.config, ACCOUNT)}"
    for prefix in records.WRITTEN_BY_HEAD:
        page = f"{bucket}/{prefix}x.gz"
        assert roles.head("s3:PutObject", page, {"s3:if-none-match": "*"})
        assert not roles.head("s3:PutObject", page)
        for action in ("s3:GetObject", "s3:DeleteObject", "s3:DeleteObjectVersion"):
            assert not roles.head(action, page, {"s3:if-none-match": "*"})
        assert not roles.compute("s3:PutObject", page, {"s3:if-none-match": "*"})
    kept = f"{bucket}/records/ledger/instances/i-1.json"
    assert not roles.head("s3:PutObject", kept, {"s3:if-none-match": "*"})


SSM_AGENT = {
    "ssm:UpdateInstanceInformation",
    "ssmmessages:CreateControlChannel",
    "ssmmessages:CreateDataChannel",
    "ssmmessages:OpenControlChannel",
    "ssmmessages:OpenDataChannel",
}
# botocore has no model of what agents alone call.
AGENT_CALLS = {
    "ssmmessages": [
        f"{verb}{kind}Channel" for verb in ("Create", "Open") for kind in ("Control", "Data")
    ],
    "ec2messages": ["AcknowledgeMessage", "FailMessage", "GetEndpoint", "GetMessages", "SendReply"],
}


def ssm_rights(is_allowed):
    calls = AGENT_CALLS | {"ssm": (*operations("ssm"), "UpdateInstanceInformation")}
    return {
        f"{service}:{call}"
        for service, names in calls.items()
        for call in names
        if is_allowed(f"{service}:{call}", "*")
        or is_allowed(f"{service}:{call}", f"arn:aws:ssm:us-east-1:{ACCOUNT}:parameter/db")
    }


def test_the_head_node_has_the_rights_of_the_ssm_agent_and_none_to_parameters(roles):
    assert ssm_rights(roles.head) == SSM_AGENT


def test_a_compute_node_has_no_right_in_ssm(roles):
    assert ssm_rights(roles.compute) == set()


def mlflow(roles, action, resource, context=None):
    request = Request(action, resource, context or {})
    return allowed(statements(roles.text, "MlflowRole"), request)


def test_mlflows_role_keeps_artifacts_and_reaches_nothing_else(roles):
    for action in ("s3:GetObject", "s3:PutObject", "s3:DeleteObject"):
        assert mlflow(roles, action, "Bucket.Arn/mlflow/1/run/artifacts/x")
        for key in ("bundle/current", "ledger/i-1.json", "status/head.json", "ssm/c/x",
                    "checkpoints/ada/x", "data/names/x", "mlflowx/1"):  # fmt: skip
            assert not mlflow(roles, action, f"Bucket.Arn/{key}"), key
    assert mlflow(roles, "s3:ListBucket", "Bucket.Arn", {"s3:prefix": "mlflow/1/run/artifacts/"})
    for prefix in ("", "ledger/", "mlflow"):
        assert not mlflow(roles, "s3:ListBucket", "Bucket.Arn", {"s3:prefix": prefix})
    for service in ("ec2", "iam", "sts", "secretsmanager", "ssm"):
        for resource in ("*", "HeadRole.Arn", "ComputeRole.Arn", "SlurmKey"):
            assert not [
                each for each in operations(service) if mlflow(roles, f"{service}:{each}", resource)
            ]


def test_the_head_node_assumes_mlflows_role_and_has_no_right_to_artifacts_itself(roles):
    assert roles.head("sts:AssumeRole", "MlflowRole.Arn")
    for other in ("ComputeRole.Arn", "JobRole.Arn", f"arn:aws:iam::{ACCOUNT}:role/Admin"):
        assert not roles.head("sts:AssumeRole", other)
    for action in ("s3:GetObject", "s3:PutObject", "s3:DeleteObject"):
        assert not roles.head(action, "Bucket.Arn/mlflow/1/run/artifacts/x")


def test_mlflows_role_trusts_the_head_node_alone(roles):
    (statement,) = yaml.load(roles.text, Loader)["Resources"]["MlflowRole"]["Properties"][  # noqa: S506 - a safe loader
        "AssumeRolePolicyDocument"
    ]["Statement"]
    assert statement["Principal"] == {"AWS": "HeadRole.Arn"}


ADA = {"aws:PrincipalTag/user": "ada", "aws:PrincipalTag/job": "7"}
NEW = {"s3:if-none-match": "*", "s3:ObjectCreationOperation": "true"}
PART = {"s3:ObjectCreationOperation": "false"}


@pytest.fixture
def s3_stack():
    """The stack of a cluster whose jobs keep data in its bucket."""
    config = example("aws")
    changes = {
        "training": config.training.model_copy(update={"checkpoints": "bucket"}),
        "data": config.data.model_copy(update={"store": "bucket"}),
    }
    return stack_template(config.model_copy(update=changes), FACTS)


@pytest.fixture
def job_may(s3_stack):
    """Say whether ada's job may do something."""

    def may(action, key, context=None):
        resource = f"Bucket.Arn/{key}" if key else "Bucket.Arn"
        request = Request(f"s3:{action}", resource, ADA | (context or {}))
        return allowed(statements(s3_stack, "JobRole"), request)

    return may


@pytest.mark.parametrize("action", ["GetObject", "PutObject", "DeleteObject"])
def test_a_job_reaches_its_own_users_checkpoints_alone(job_may, action):
    assert job_may(action, "checkpoints/ada/run/step-1/model")
    for key in ("checkpoints/grace/run/model", "checkpoints/adam/x", "checkpoints/x",
                "bundle/x.zip", "ledger/i-1.json", "status/head.json", "mlflow/1"):  # fmt: skip
        assert not job_may(action, key), key


def test_a_session_without_a_user_reaches_no_checkpoint(s3_stack):
    request = Request("s3:PutObject", "Bucket.Arn/checkpoints//x", {})
    assert not allowed(statements(s3_stack, "JobRole"), request)


@pytest.mark.parametrize("kind", ["objects", "manifests", "names", "derivations"])
def test_a_job_adds_to_datasets_and_neither_replaces_nor_deletes(job_may, kind):
    key = f"data/{kind}/x"
    assert job_may("PutObject", key, NEW)
    assert job_may("GetObject", key)
    assert not job_may("PutObject", key, {"s3:ObjectCreationOperation": "true"})
    assert not job_may("DeleteObject", key)
    assert job_may("PutObject", key, PART) == (kind == "objects")


def test_a_job_lists_datasets_and_its_own_checkpoints_alone(job_may):
    for prefix in ("data/names/", "data/sweep/", "checkpoints/ada/run/"):
        assert job_may("ListBucket", "", {"s3:prefix": prefix})
    for prefix in ("", "data/", "data/else/", "checkpoints/", "checkpoints/grace/", "ledger/"):
        assert not job_may("ListBucket", "", {"s3:prefix": prefix})
    assert not job_may("ListBucket", "")


@pytest.mark.parametrize("store", ["s3://lab", "s3://lab/sets"])
def test_a_job_reads_the_stores_own_prefixes_and_nothing_else_beside_them(store):
    """Checkpoints of another cluster may lie in the same bucket."""
    config = example("aws")
    changes = {"data": config.data.model_copy(update={"store": store})}
    read = statements(stack_template(config.model_copy(update=changes), FACTS), "JobRole")
    root = f"arn:aws:{store.replace('://', ':::')}"

    def reads(key):
        return allowed(read, Request("s3:GetObject", f"{root}/{key}", ADA))

    assert all(reads(f"{kind}/x") for kind in ("objects", "manifests", "names", "derivations"))
    assert not any(reads(key) for key in ("checkpoints/grace/model", "runs/x", "objects"))


def test_nodes_and_the_head_have_no_right_to_jobs_data_themselves(s3_stack):
    for role in ("ComputeRole", "HeadRole"):
        for key in ("data/objects/x", "checkpoints/ada/run/x"):
            for action in ("GetObject", "PutObject", "DeleteObject"):
                request = Request(f"s3:{action}", f"Bucket.Arn/{key}", ADA | NEW)
                assert not allowed(statements(s3_stack, role), request), (role, action, key)


def test_a_node_may_assume_the_role_of_jobs_and_no_other(s3_stack):
    read = statements(s3_stack, "ComputeRole")
    for action in ("sts:AssumeRole", "sts:TagSession"):
        assert allowed(read, Request(action, "JobRole.Arn"))
        assert not allowed(read, Request(action, "HeadRole.Arn"))


def test_a_cluster_that_keeps_nothing_of_its_jobs_in_s3_has_no_role_for_them(roles):
    assert "JobRole" not in roles.text


@pytest.mark.parametrize("name", ["local", "aws"])
def test_an_image_builder_reads_bundles_and_writes_its_status_only(name):
    """Give a builder few rights, because it runs downloaded code for minutes."""
    builder_statements = statements(images_template(example(name), ACCOUNT), "BuilderRole")

    def may(action, resource):
        return allowed(builder_statements, Request(action, resource))

    assert may("s3:GetObject", "Bucket.Arn/bundle/x")
    assert may("s3:PutObject", "Bucket.Arn/status/x")
    assert not may("s3:PutObject", "Bucket.Arn/bundle/x")
    assert not may("s3:DeleteObject", "Bucket.Arn/status/x")
    assert not [each for each in operations("ec2") if may(f"ec2:{each}", "*")]


def bucket_denies(text, action, resource, role):
    """Say if the bucket's policy itself refuses a call."""
    resources = yaml.load(text, Loader)["Resources"]  # noqa: S506 - a safe loader
    document = resources["BucketPolicy"]["Properties"]["PolicyDocument"]
    for item in document["Statement"]:
        item.pop("Principal")
        listed = item["Resource"] if isinstance(item["Resource"], list) else [item["Resource"]]
        item["Resource"] = [fill_in(resource) for resource in listed]
    context = {"aws:PrincipalArn": role, "aws:SecureTransport": "true"}
    decision = policy.decide(policy.read("bucket", document), Request(action, resource, context))
    return decision.right is not None and not decision.allowed


@pytest.mark.parametrize("role", ["HeadRole.Arn", "ComputeRole.Arn", "JobRole.Arn"])
def test_no_role_of_the_cluster_may_write_a_bundle_whatever_its_policies_say(s3_stack, role):
    """Refuse it twice: root of the head runs what lies there."""
    for action in ("PutObject", "PutObjectAcl", "DeleteObject", "DeleteObjectVersion"):
        assert bucket_denies(s3_stack, f"s3:{action}", "Bucket.Arn/bundle/x.zip", role)
        assert not bucket_denies(s3_stack, f"s3:{action}", "Bucket.Arn/status/head.json", role)
    assert not bucket_denies(s3_stack, "s3:GetObject", "Bucket.Arn/bundle/x.zip", role)
    for action in ("PutBucketPolicy", "DeleteBucketPolicy", "PutBucketVersioning"):
        assert bucket_denies(s3_stack, f"s3:{action}", "Bucket.Arn", role)


def test_people_may_write_bundles_by_their_own_rights(s3_stack):
    admin = f"arn:aws:iam::{ACCOUNT}:role/admin"
    assert not bucket_denies(s3_stack, "s3:PutObject", "Bucket.Arn/bundle/x.zip", admin)
    assert not bucket_denies(s3_stack, "s3:PutBucketPolicy", "Bucket.Arn", admin)
