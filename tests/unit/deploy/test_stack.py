"""The stack's template: laws on its rendered YAML."""

import json
import re
from dataclasses import replace
from functools import cache

import pytest
import yaml

from tests.unit.deploy.samples import ACCOUNT, FACTS, ROOT, example
from toolkit.config import parse
from toolkit.config.training import Data
from toolkit.deploy import names
from toolkit.deploy.ingress import ingress_rules
from toolkit.deploy.stack import (
    images_template,
    stack_template,
)
from toolkit.deploy.user_data import MAX_USER_DATA, builder_script, compute_script, head_script
from toolkit.errors import DeployError

BUCKET = "demo-123456789012-us-east-1"
WITHOUT_RESOURCES = re.compile(
    "ec2:Describe|ssmmessages:|ssm:UpdateInstanceInformation"
    "|cloudwatch:PutMetricData|cloudwatch:GetMetricData"
)


class Loader(yaml.CSafeLoader):
    """A YAML loader in C, with tags such as !Sub as text.

    A loader in Python would take longer than the tests.
    """


Loader.add_multi_constructor("!", lambda loader, _, node: node.value)


@cache
def parsed(text):
    return yaml.load(text, Loader)["Resources"]  # noqa: S506 - a safe loader


def resources(config=None):
    return parsed(stack_template(config or example(), FACTS))


def of_type(resources_by_id, kind):
    return {
        name: item["Properties"] for name, item in resources_by_id.items() if item["Type"] == kind
    }


@pytest.fixture(params=["local", "aws"])
def stack(request):
    return resources(example(request.param))


def test_no_security_group_accepts_connections_from_everywhere(stack):
    """Refuse 0.0.0.0/0 and ::/0 as a source in every rule."""
    rules = [*of_type(stack, "AWS::EC2::SecurityGroupIngress").values()]
    for group in of_type(stack, "AWS::EC2::SecurityGroup").values():
        rules += group.get("SecurityGroupIngress", [])
    assert rules
    assert not [rule for rule in rules if str(rule.get("CidrIp", "")).endswith("/0")]
    assert all("CidrIpv6" not in rule for rule in rules)


def test_no_instance_has_a_public_address(stack):
    """Assign public addresses neither by subnet nor by template or instance."""
    assert all(
        not net["MapPublicIpOnLaunch"] for net in of_type(stack, "AWS::EC2::Subnet").values()
    )
    assert "AssociatePublicIpAddress" not in str(stack)


def test_compute_nodes_may_connect_to_each_other_with_every_protocol():
    """Allow every protocol within the group, for MPI and EFA."""
    rule = next(rule for rule in ingress_rules() if rule.id == "ComputeFromCompute")
    assert (rule.protocol, rule.to, rule.source) == ("-1", "ComputeGroup", "ComputeGroup")


def test_instance_metadata_requires_a_token(stack):
    """Require IMDSv2 with one hop and tags, on templates and head node."""
    launch_data = [item["LaunchTemplateData"] for item in _templates(stack).values()]
    for properties in [*launch_data, stack["Head"]["Properties"]]:
        options = properties["MetadataOptions"]
        assert options["HttpTokens"] == "required"
        assert options["HttpPutResponseHopLimit"] == 1
        assert options["InstanceMetadataTags"] == "enabled"


def _templates(stack):
    return of_type(stack, "AWS::EC2::LaunchTemplate")


def test_every_pool_has_a_launch_template_with_the_expected_name():
    """Name templates so that slurm-resume finds them.

    A name has cluster and pool, and the zone if the pool is bound to one.
    """
    launch_templates = _templates(resources(example("aws")))
    assert {item["LaunchTemplateName"] for item in launch_templates.values()} == {
        "research.a10g",
        "research.cpu",
        "research.h100.us-east-1a",
    }


def test_a_pool_with_efa_has_its_interfaces_and_placement_group_in_its_template():
    """Name the subnet in the template.

    EFA and placement groups belong to one zone.
    """
    stack = resources(example("aws"))
    (data,) = [
        item["LaunchTemplateData"]
        for item in _templates(stack).values()
        if item["LaunchTemplateName"] == "research.h100.us-east-1a"
    ]
    cards = data["NetworkInterfaces"]
    assert [card["NetworkCardIndex"] for card in cards] == list(range(32))
    assert [card["DeviceIndex"] for card in cards] == [0] + [1] * 31
    assert [card["InterfaceType"] for card in cards] == ["efa"] + ["efa-only"] * 31
    assert "SecurityGroupIds" not in data
    assert stack[data["Placement"]["GroupName"]]["Type"] == "AWS::EC2::PlacementGroup"
    assert of_type(stack, "AWS::EC2::SecurityGroupEgress")


def test_no_two_launch_templates_have_one_name():
    """Keep clusters, pools and zones apart in the names."""
    text = (ROOT / "examples" / "aws.yaml").read_text()
    renamed = [
        ("cluster: research", "cluster: a", "b-c"),
        ("cluster: research", "cluster: a-b", "c"),
        ("cluster: research", "cluster: a", "h100-us-east-1a"),
    ]
    used: set[str] = set()
    for old, new, pool in renamed:
        changed = text.replace(old, new).replace("  cpu:\n", f"  {pool}:\n")
        config = parse(changed.replace("pools: [cpu]", f"pools: [{pool}]"))
        found = {item["LaunchTemplateName"] for item in _templates(resources(config)).values()}
        assert len(found) == 3
        used |= {name for name in found if pool in name}
    assert len(used) == 3


def test_a_type_whose_first_card_has_no_efa_gets_a_plain_first_interface():
    """Put p6-b300's adapters on its cards 1 to 16."""
    text = (ROOT / "examples" / "aws.yaml").read_text()
    reserved = next(line for line in text.splitlines(keepends=True) if "reservation:" in line)
    text = text.replace(reserved, "").replace("p5.48xlarge", "p6-b300.48xlarge")
    stack = resources(parse(text.replace("efa: 32", "efa: 16")))
    (cards,) = [
        item["LaunchTemplateData"]["NetworkInterfaces"]
        for item in _templates(stack).values()
        if "NetworkInterfaces" in item["LaunchTemplateData"]
    ]
    assert [card["NetworkCardIndex"] for card in cards] == list(range(17))
    assert [card["DeviceIndex"] for card in cards] == [0] * 17
    assert [card.get("InterfaceType") for card in cards] == [None] + ["efa-only"] * 16


def test_the_head_node_may_launch_into_the_reservations_and_placement_groups_of_pools():
    """Allow the reservations of cluster.yaml and no others."""
    allowed = [
        resource
        for item in statements(resources(example("aws")), "HeadRole")
        if item["Sid"] == "LaunchFromOurNetwork"
        for resource in as_list(item["Resource"])
    ]
    assert any("capacity-reservation/cr-0a1b2c3d4e5f60718" in str(item) for item in allowed)
    assert any("placement-group/" in str(item) for item in allowed)


def test_a_compute_node_that_powers_off_is_terminated(stack):
    """Terminate the instance, because a stopped one would pay for its disk."""
    behaviors = {
        item["LaunchTemplateData"]["InstanceInitiatedShutdownBehavior"]
        for item in _templates(stack).values()
    }
    assert behaviors == {"terminate"}


def test_every_disk_and_bucket_is_encrypted(stack):
    """Encrypt volumes and buckets at rest.

    FSx always encrypts its filesystem.
    """
    launch_data = [item["LaunchTemplateData"] for item in _templates(stack).values()]
    for properties in [*launch_data, stack["Head"]["Properties"]]:
        assert all(disk["Ebs"]["Encrypted"] for disk in properties["BlockDeviceMappings"])
    assert stack["Bucket"]["Properties"]["BucketEncryption"]
    assert all(stack["Bucket"]["Properties"]["PublicAccessBlockConfiguration"].values())


def test_buckets_refuse_plain_http_unless_the_endpoint_is_http():
    """Leave the TLS-only statement out only if the endpoint itself is http."""
    assert "EncryptedConnectionsOnly" in bucket_statements(resources(example("aws")))
    assert "EncryptedConnectionsOnly" not in bucket_statements(resources(example("local")))
    assert "SecureTransport" in images_template(example("aws"), ACCOUNT)


def bucket_statements(stack):
    listed = stack["BucketPolicy"]["Properties"]["PolicyDocument"]["Statement"]
    return {item["Sid"]: item for item in listed}


def statements(stack, role):
    policies = stack[role]["Properties"]["Policies"]
    return [item for policy in policies for item in policy["PolicyDocument"]["Statement"]]


def as_list(value):
    return value if isinstance(value, list) else [value]


def test_run_instances_is_allowed_by_four_statements_without_wildcards(stack):
    """Split RunInstances as Karpenter does; no statement allows it on everything.

    test_role_policies checks the network, templates and tags of the statements.
    """
    statements_by_sid = {
        item["Sid"]: item
        for item in statements(stack, "HeadRole")
        if "ec2:RunInstances" in as_list(item["Action"])
    }
    assert set(statements_by_sid) == {
        "LaunchFromOurNetwork",
        "LaunchFromOurTemplates",
        "LaunchWithOurTags",
        "LaunchListedTypes",
    }
    network = as_list(statements_by_sid["LaunchFromOurNetwork"]["Resource"])
    for kind in ("image", "security-group", "subnet"):
        assert not [arn for arn in network if arn.endswith(f":{kind}/*")]
    requests = [arn for arn in network if arn.endswith(":spot-instances-request/*")]
    tagged = [
        arn
        for arn in as_list(statements_by_sid["LaunchWithOurTags"]["Resource"])
        if "spot-inst" in arn
    ]
    assert (len(requests), tagged) == (1, []), "a fleet can't tag the spot requests it makes"


def test_wildcard_resources_are_used_for_describe_calls_only(stack):
    """Name the resource of every action that knows resources.

    EC2's describe calls and the SSM agent's know none.
    """
    for role in ("HeadRole", "ComputeRole"):
        for item in statements(stack, role):
            assert "NotAction" not in item
            if "*" in as_list(item["Resource"]):
                assert all(map(WITHOUT_RESOURCES.match, as_list(item["Action"])))


def test_no_role_has_a_policy_that_amazon_manages(stack):
    """Keep out policies that change without us."""
    roles = of_type(stack, "AWS::IAM::Role")
    assert len(roles) >= 3
    assert not [name for name, role in roles.items() if "ManagedPolicyArns" in role]


def test_mlflow_has_a_role_only_where_mlflow_runs():
    """Make neither the role nor the head's right to it for nobody."""
    config = example("aws")
    without = config.model_copy(
        update={"mlflow": config.mlflow.model_copy(update={"enabled": False})}
    )
    assert {"MlflowRole", "HeadMlflow"} <= set(resources(config))
    assert not {"MlflowRole", "HeadMlflow"} & set(resources(without))


def test_a_compute_node_may_read_one_secret_and_nothing_in_ec2(stack):
    """Protect AWS from a user who becomes root on a node."""
    actions = [a for item in statements(stack, "ComputeRole") for a in as_list(item["Action"])]
    assert actions == [
        "secretsmanager:GetSecretValue", "logs:CreateLogStream", "logs:PutLogEvents",
    ]  # fmt: skip


def test_user_data_has_no_secret_and_fits_into_16_kib():
    """Keep secrets out, because everyone on the instance reads user data.

    EC2 takes at most 16 KiB.
    """
    config = example("aws")
    scripts = [
        head_script(config, BUCKET),
        compute_script(config, BUCKET),
        builder_script(config, bucket=BUCKET, image="toolkit-head-0123456789ab", sha="0" * 64),
    ]
    for script in scripts:
        assert script.startswith("#!/bin/bash\n")
        assert len(script.encode()) < MAX_USER_DATA
        assert not re.search(r"(?i)password|aws_secret|access_key|BEGIN .*KEY", script)


def test_user_data_has_no_shell_variables_that_cloudformation_would_replace():
    """Use no ${x} of the shell, because Fn::Sub would replace it."""
    config = example()
    assert "${" not in head_script(config, BUCKET)
    assert set(re.findall(r"\$\{[^}]*\}", compute_script(config, BUCKET))) == {
        "${SharedFilesystem.DNSName}",
        "${SharedFilesystem.LustreMountName}",
    }


def test_node_json_has_the_addresses_of_the_cluster():
    """Write the facts that slurm-node-boot reads as one JSON object."""
    script = compute_script(example(), BUCKET)
    node = json.loads(script.split("<<'JSON'\n")[1].split("\nJSON")[0])
    assert node["head_address"] == "10.42.1.10"
    assert node["secret_id"] == "demo/slurm-key"
    assert node["bucket"] == BUCKET
    assert node["shared"]["path"] == "/shared"


def test_the_first_boot_script_is_valid_python():
    """Compile the script here instead of on an instance."""
    script = head_script(example("aws"), BUCKET)
    source = script.split("<<'PYTHON'\n")[1].split("\nPYTHON")[0]
    compile(source, "first_boot", "exec")


def test_user_data_does_not_depend_on_the_deployed_bundle():
    """Keep the bundle out of the head node's user data.

    Changed user data would restart the head node.
    """
    script = head_script(example(), BUCKET)
    assert not re.search(r"[0-9a-f]{64}", script)
    assert "toolkit:bundle" in script, "the tag says which"


def test_user_data_over_the_limit_is_refused():
    """Name the instance and the limit, which EC2's own message does not."""
    config = example()
    url = "http://" + "a" * MAX_USER_DATA
    large = config.model_copy(update={"aws": config.aws.model_copy(update={"endpoint_url": url})})
    with pytest.raises(DeployError, match="head node's user data"):
        stack_template(large, FACTS)


def test_the_logical_id_of_a_pool_does_not_depend_on_other_pools():
    """Keep a pool's logical id if the pools change places.

    A new id would make a second launch template of the same name.
    """
    text = (ROOT / "examples" / "aws.yaml").read_text()
    before = _templates(resources(parse(text)))
    cpu, partitions_at = text.index("  cpu:\n"), text.index("partitions:")
    turned = text.index("  a10g:\n")
    swapped = (
        text[:turned]
        + text[cpu:partitions_at].rstrip()
        + "\n"
        + text[turned:cpu]
        + text[partitions_at:]
    )
    assert _templates(resources(parse(swapped))) == before


def test_pools_with_similar_names_have_different_logical_ids():
    """Add a hash, because `a-10g` and `a10g` have the same letters."""
    text = (ROOT / "examples" / "aws.yaml").read_text()
    text = text.replace("  cpu:\n    count", "  a-10g:\n    count").replace("[cpu]", "[a-10g]")
    assert len(_templates(resources(parse(text)))) == 3


def test_instances_without_a_nat_gateway_have_endpoints():
    """Make a NAT gateway, or one endpoint for each service."""
    closed, opened = resources(example("local")), resources(example("aws"))
    services = {item["ServiceName"] for item in of_type(closed, "AWS::EC2::VPCEndpoint").values()}
    assert {name.rsplit(".", 1)[1] for name in services} == {
        "s3", "ec2", "secretsmanager", "ssm", "ssmmessages", "sts", "logs", "monitoring",
    }  # fmt: skip
    assert "Nat" not in closed
    assert "Nat" in opened


def test_the_bucket_name_of_the_template_is_the_one_that_the_cli_uses():
    """Use one bucket name in the template and in the commands."""
    config = example()
    assert resources(config)["Bucket"]["Properties"]["BucketName"] == names.bucket(config, ACCOUNT)


def test_every_taggable_resource_has_the_cluster_tag(stack):
    """Tag every resource, because destroy finds leftovers by this tag."""
    untagged = {
        "AWS::EC2::SubnetRouteTableAssociation", "AWS::EC2::SecurityGroupIngress",
        "AWS::EC2::VPCGatewayAttachment", "AWS::EC2::Route", "AWS::IAM::InstanceProfile",
        "AWS::S3::BucketPolicy", "AWS::EC2::LaunchTemplate", "AWS::EC2::SecurityGroupEgress",
        "AWS::IAM::Policy",
        "AWS::EC2::VolumeAttachment",
    }  # fmt: skip
    for name, item in stack.items():
        if item["Type"] not in untagged:
            keys = [tag["Key"] for tag in item["Properties"]["Tags"]]
            assert "toolkit:cluster" in keys, name
    for item in _templates(stack).values():
        kinds = {spec["ResourceType"] for spec in item["LaunchTemplateData"]["TagSpecifications"]}
        assert kinds == {"instance", "volume", "network-interface"}
        assert item["TagSpecifications"][0]["ResourceType"] == "launch-template"


@pytest.mark.parametrize(
    ("store", "bucket", "objects"),
    [
        ("bucket", "${Bucket.Arn}", "${Bucket.Arn}/data/*"),
        (
            "s3://lab/sets",
            "arn:${AWS::Partition}:s3:::lab",
            "arn:${AWS::Partition}:s3:::lab/sets/*",
        ),
        ("s3://lab", "arn:${AWS::Partition}:s3:::lab", "arn:${AWS::Partition}:s3:::lab/*"),
    ],
)
def test_jobs_have_access_to_the_datasets_prefix_only(store, bucket, objects):
    """Allow S3 to jobs alone, for a store in S3."""
    stack = resources(example("aws").model_copy(update={"data": Data(store=store)}))
    statements_by_sid = {item["Sid"]: item for item in statements(stack, "JobRole")}
    assert statements_by_sid["FindDatasets"]["Resource"] == bucket
    records = [
        objects.replace("*", f"{kind}/*")
        for kind in ("objects", "manifests", "names", "derivations")
    ]
    assert statements_by_sid["ReadDatasets"]["Resource"] == records
    assert statements_by_sid["AddToDatasets"]["Resource"] == records
    assert "JobRole" not in resources(example("aws"))
    for role in ("HeadRole", "ComputeRole"):
        assert not [s for s in statements(stack, role) if "Datasets" in s["Sid"]]


@pytest.mark.parametrize(
    ("place", "objects"),
    [
        ("bucket", "${Bucket.Arn}/checkpoints/*"),
        ("s3://lab/runs", "arn:${AWS::Partition}:s3:::lab/runs/*"),
    ],
)
def test_jobs_have_access_to_their_users_checkpoints_in_s3_only_if_configured(place, objects):
    config = example("aws")
    changed = config.training.model_copy(update={"checkpoints": place})
    stack = resources(config.model_copy(update={"training": changed}))
    statements_by_sid = {item["Sid"]: item for item in statements(stack, "JobRole")}
    assert statements_by_sid["FindCheckpoints"]["Resource"] + "/" in objects
    own = objects.replace("*", "${!aws:PrincipalTag/user}/*")
    assert statements_by_sid["KeepCheckpoints"]["Resource"] == own
    assert {"s3:PutObject", "s3:AbortMultipartUpload", "s3:ListMultipartUploadParts"} <= set(
        statements_by_sid["KeepCheckpoints"]["Action"]
    )
    assert "JobRole" not in resources(config)
    other_statements = statements(stack, "HeadRole") + statements(stack, "ComputeRole")
    assert "KeepCheckpoints" not in {item["Sid"] for item in other_statements}


def test_without_a_nat_gateway_sts_is_reached_only_for_jobs_s3_and_for_mlflow():
    whole = example("local")
    off = whole.mlflow.model_copy(update={"enabled": False})
    config = whole.model_copy(update={"mlflow": off})
    assert "StsEndpoint" in resources(whole)
    changed = config.model_copy(update={"data": Data(store="bucket")})
    assert "StsEndpoint" in resources(changed)
    assert "StsEndpoint" not in resources(config)


@pytest.mark.parametrize("key", ["data.store", "training.checkpoints"])
def test_the_clusters_own_bucket_by_its_name_is_refused_as_a_place_of_jobs_data(key):
    """The bundle lies there, which root runs on every instance."""
    config = example("aws")
    place = f"s3://{names.bucket(config, ACCOUNT)}"
    section, field = key.split(".")
    changed = getattr(config, section).model_copy(update={field: place})
    with pytest.raises(DeployError, match=f"{key} names .* own bucket") as refusal:
        resources(config.model_copy(update={section: changed}))
    assert refusal.value.next_step.startswith(f"write {key}: bucket")


def test_the_head_nodes_data_volume_outlives_its_instance(stack):
    """Keep Slurm's state on an encrypted volume of its own.

    A deleted stack, or another volume in its place, leaves a snapshot.
    """
    ((name, volume),) = of_type(stack, "AWS::EC2::Volume").items()
    (attachment,) = of_type(stack, "AWS::EC2::VolumeAttachment").values()
    assert stack[name]["DeletionPolicy"] == stack[name]["UpdateReplacePolicy"] == "Snapshot"
    assert volume["Encrypted"]
    assert volume["AvailabilityZone"] == "us-east-1a"
    assert (attachment["VolumeId"], attachment["InstanceId"]) == (name, "Head")


def test_between_two_head_instances_the_volume_stays_in_the_stack():
    """Leave out the instance with its attachment and alarm, and nothing else."""
    config = example()
    between = parsed(stack_template(config, replace(FACTS, with_head=False)))
    of_the_instance = {"Head", "HeadDataAttachment", "HeadImpairedAlarm"}
    assert set(resources(config)) - set(between) == of_the_instance


def test_another_zone_or_snapshot_is_another_volume():
    """Name the zone and the snapshot: CloudFormation changes neither in place."""
    text = (ROOT / "examples" / "local.yaml").read_text()
    snapshot = text.replace("data_gib: 8", "data_gib: 8, data_snapshot: snap-0123456789abcdef0")
    moved = text.replace("us-east-1a:", "us-east-1c:")
    found = [
        set(of_type(resources(parse(body)), "AWS::EC2::Volume")) for body in (text, snapshot, moved)
    ]
    assert found == [
        {"HeadDataUsEast1a"},
        {"HeadDataUsEast1aSnap0123456789abcdef0"},
        {"HeadDataUsEast1c"},
    ]
