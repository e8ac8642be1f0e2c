"""CloudFormation of the local cloud, with the real template of deploy."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from botocore.exceptions import ClientError

from toolkit.config import load
from toolkit.deploy.stack import TemplateFacts, stack_template

EXAMPLE = Path(__file__).parents[3] / "examples" / "local.yaml"
NODES = {"Key": "toolkit:nodes", "Value": "gpu-[001-002]"}
FINAL_STATES = (
    "CREATE_COMPLETE",
    "ROLLBACK_COMPLETE",
    "ROLLBACK_FAILED",
    "UPDATE_COMPLETE",
    "UPDATE_FAILED",
    "DELETE_FAILED",
    "DELETE_COMPLETE",
)


@pytest.fixture
def cfn(local):
    return local.client("cloudformation")


def wait_for_stack(local, cfn, stack):
    def finished_stack():
        described = cfn.describe_stacks(StackName=stack)["Stacks"][0]
        return described if described["StackStatus"] in FINAL_STATES else None

    return local.until(finished_stack)


def create(local, cfn, body, name="demo"):
    change_set = cfn.create_change_set(
        StackName=name,
        ChangeSetName="first",
        ChangeSetType="CREATE",
        Capabilities=["CAPABILITY_IAM"],
        TemplateBody=body,
    )
    cfn.execute_change_set(ChangeSetName=change_set["Id"])
    return wait_for_stack(local, cfn, change_set["StackId"])


def test_a_large_template_is_read_from_a_bucket_of_this_cloud(local, cfn):
    s3 = local.client("s3")
    s3.create_bucket(Bucket="templates")
    body = {"Resources": {"Topic": {"Type": "AWS::SNS::Topic"}}}
    s3.put_object(Bucket="templates", Key="a/demo.yaml", Body=json.dumps(body).encode())
    place = f"{s3.meta.endpoint_url}/templates/a"
    request = {"StackName": "demo", "ChangeSetName": "first", "ChangeSetType": "CREATE"}
    with pytest.raises(ClientError, match="S3 error: The specified key does not exist"):
        cfn.create_change_set(**request, TemplateURL=f"{place}/other.yaml")
    change_set = cfn.create_change_set(**request, TemplateURL=f"{place}/demo.yaml")
    described = cfn.describe_change_set(ChangeSetName=change_set["Id"])
    (change,) = described["Changes"]
    assert change["ResourceChange"]["LogicalResourceId"] == "Topic"


@pytest.fixture
def cluster_template(local):
    config = load(EXAMPLE)
    return stack_template(
        config, TemplateFacts("123456789012", local.image, local.image, "/dev/xvda", "0.1")
    )


def end_head(local, ec2):
    """Terminate the head first, as destroy does.

    EC2 detaches no volume that is mounted.
    """
    ids = [item.id for item in local.cloud.tables.instances.values()]
    ec2.terminate_instances(InstanceIds=ids)
    local.until(
        lambda: all(item.state == "terminated" for item in local.cloud.tables.instances.values())
    )


def test_the_clusters_template_becomes_a_stack_and_is_deleted(local, cfn, ec2, cluster_template):
    stack = create(local, cfn, cluster_template)
    events = cfn.describe_stack_events(StackName=stack["StackId"])["StackEvents"]
    failures = [e for e in events if "FAILED" in e["ResourceStatus"]]
    assert stack["StackStatus"] == "CREATE_COMPLETE", failures
    outputs = {one["OutputKey"]: one["OutputValue"] for one in stack["Outputs"]}
    head = ec2.describe_instances(InstanceIds=[outputs["HeadInstance"]])
    head = head["Reservations"][0]["Instances"][0]
    assert head["State"]["Name"] == "running"
    assert head["PrivateIpAddress"] == "10.42.1.10"
    assert head["MetadataOptions"]["HttpTokens"] == "required"
    assert head["IamInstanceProfile"]["Arn"].startswith("arn:aws:iam::123456789012:")
    assert head["SecurityGroups"][0]["GroupId"].startswith("sg-")
    tags = {tag["Key"]: tag["Value"] for tag in head["Tags"]}
    assert tags["toolkit:role"] == "head"
    assert tags["aws:cloudformation:logical-id"] == "Head"

    resources = cfn.describe_stack_resources(StackName="demo")["StackResources"]
    by_id = {one["LogicalResourceId"]: one for one in resources}
    assert by_id["Head"]["PhysicalResourceId"] == outputs["HeadInstance"]
    assert {one["ResourceStatus"] for one in resources} == {"CREATE_COMPLETE"}
    secret = local.client("secretsmanager").get_secret_value(
        SecretId=by_id["SlurmKey"]["PhysicalResourceId"]
    )
    assert len(secret["SecretString"]) == 64
    file_system_id = by_id["SharedFilesystem"]["PhysicalResourceId"]
    file_system = local.client("fsx").describe_file_systems(FileSystemIds=[file_system_id])[
        "FileSystems"
    ][0]
    assert file_system["Lifecycle"] == "AVAILABLE"
    assert file_system["DNSName"] == f"{file_system_id}.fsx.us-east-1.amazonaws.com"
    assert file_system["LustreConfiguration"]["MountName"] == "shared"
    directory = local.cloud.options.state / "fsx" / file_system_id
    assert directory.is_dir()

    end_head(local, ec2)
    cfn.delete_stack(StackName="demo")
    deleted_stack = wait_for_stack(local, cfn, stack["StackId"])
    events = cfn.describe_stack_events(StackName=stack["StackId"])["StackEvents"]
    failures = [e for e in events if "FAILED" in e["ResourceStatus"]]
    assert deleted_stack["StackStatus"] == "DELETE_COMPLETE", failures
    assert not directory.exists()
    states = [instance.state for instance in local.cloud.tables.instances.values()]
    assert states == ["terminated"]
    assert not ec2.describe_vpcs(Filters=[{"Name": "cidr", "Values": ["10.42.0.0/16"]}])["Vpcs"]
    assert not local.client("s3").list_buckets()["Buckets"]


def test_a_launch_from_the_pools_launch_template_has_all_of_its_settings(
    local, cfn, ec2, cluster_template
):
    stack = create(local, cfn, cluster_template)
    resources = cfn.describe_stack_resources(StackName=stack["StackId"])["StackResources"]
    subnets = [r for r in resources if r["ResourceType"] == "AWS::EC2::Subnet"]
    instances = ec2.run_instances(
        LaunchTemplate={"LaunchTemplateName": "demo.gpu"},
        InstanceType="g5.xlarge",
        MinCount=2,
        MaxCount=2,
        SubnetId=subnets[0]["PhysicalResourceId"],
        InstanceMarketOptions={"MarketType": "spot"},
        TagSpecifications=[
            {
                "ResourceType": "instance",
                "Tags": [{"Key": "toolkit:nodes", "Value": "gpu-[001-002]"}],
            }
        ],
    )["Instances"]
    assert [one["AmiLaunchIndex"] for one in instances] == [0, 1]
    for one in instances:
        tags = {tag["Key"]: tag["Value"] for tag in one["Tags"]}
        assert tags["toolkit:cluster"] == "demo"
        assert tags["toolkit:nodes"] == "gpu-[001-002]"
        assert one["MetadataOptions"]["HttpTokens"] == "required"
        assert one["MetadataOptions"]["InstanceMetadataTags"] == "enabled"
        assert one["IamInstanceProfile"]["Arn"]
        assert one["InstanceLifecycle"] == "spot"
        instance = local.cloud.tables.instances[one["InstanceId"]]
        assert instance.user_data
        assert instance.row.instance_initiated_shutdown_behavior == "terminate"


def body(resources, **more):
    return json.dumps({"Resources": resources, **more})


VPC = {"Type": "AWS::EC2::VPC", "Properties": {"CidrBlock": "10.9.0.0/16"}}


def test_a_stack_is_deleted_although_its_launch_template_is_absent(
    local, cfn, ec2, cluster_template
):
    stack = create(local, cfn, cluster_template)
    ec2.delete_launch_template(LaunchTemplateName="demo.gpu")
    end_head(local, ec2)
    cfn.delete_stack(StackName=stack["StackId"])
    assert wait_for_stack(local, cfn, stack["StackId"])["StackStatus"] == "DELETE_COMPLETE"


def test_a_resource_that_fails_rolls_back_the_stack(local, cfn, ec2):
    subnet = {
        "Type": "AWS::EC2::Subnet",
        "Properties": {"VpcId": {"Ref": "Vpc"}, "CidrBlock": "172.16.0.0/24"},
    }
    stack = create(local, cfn, body({"Vpc": VPC, "Subnet": subnet}))
    assert stack["StackStatus"] == "ROLLBACK_COMPLETE"
    events = cfn.describe_stack_events(StackName="demo")["StackEvents"]
    failed = [e for e in events if e["ResourceStatus"] == "CREATE_FAILED"]
    assert [e["LogicalResourceId"] for e in failed] == ["Subnet"]
    assert "InvalidSubnet.Range" in failed[0]["ResourceStatusReason"]
    assert not ec2.describe_vpcs(Filters=[{"Name": "cidr", "Values": ["10.9.0.0/16"]}])["Vpcs"]


def test_an_unsupported_resource_type_rolls_back_the_stack_and_is_named(local, cfn):
    stack = create(local, cfn, body({"Vpc": VPC, "X": {"Type": "AWS::Nope::Thing"}}))
    assert stack["StackStatus"] == "ROLLBACK_COMPLETE"
    events = cfn.describe_stack_events(StackName="demo")["StackEvents"]
    assert any("AWS::Nope::Thing" in e.get("ResourceStatusReason", "") for e in events)


@pytest.mark.parametrize(
    ("resources", "words"),
    [
        ({"Vpc": {**VPC, "DependsOn": "Missing"}}, "Unresolved resource dependencies"),
        ({"A": {**VPC, "DependsOn": "B"}, "B": {**VPC, "DependsOn": "A"}}, "Circular dependency"),
    ],
)
def test_a_template_with_unresolved_dependencies_is_refused(cfn, resources, words):
    with pytest.raises(ClientError, match=words):
        cfn.create_change_set(
            StackName="demo",
            ChangeSetName="first",
            ChangeSetType="CREATE",
            TemplateBody=body(resources),
        )


def test_an_update_adds_and_removes_resources(local, cfn, ec2):
    group = {
        "Type": "AWS::EC2::SecurityGroup",
        "Properties": {"GroupDescription": "one", "VpcId": {"Ref": "Vpc"}},
    }
    first = create(local, cfn, body({"Vpc": VPC, "Old": group}))
    new = body({"Vpc": VPC, "New": group}, Outputs={"Group": {"Value": {"Ref": "New"}}})
    change_set = cfn.create_change_set(
        StackName="demo", ChangeSetName="second", ChangeSetType="UPDATE", TemplateBody=new
    )
    changes = cfn.describe_change_set(ChangeSetName=change_set["Id"])["Changes"]
    actions = {
        c["ResourceChange"]["LogicalResourceId"]: c["ResourceChange"]["Action"] for c in changes
    }
    assert actions == {"New": "Add", "Old": "Remove"}
    cfn.execute_change_set(ChangeSetName=change_set["Id"])
    stack = wait_for_stack(local, cfn, first["StackId"])
    assert stack["StackStatus"] == "UPDATE_COMPLETE"
    assert stack["Outputs"][0]["OutputValue"].startswith("sg-")
    resources = cfn.describe_stack_resources(StackName="demo")["StackResources"]
    assert {r["LogicalResourceId"] for r in resources} == {"Vpc", "New"}


def test_a_bucket_with_objects_is_not_deleted(local, cfn):
    create(
        local,
        cfn,
        body({"Bucket": {"Type": "AWS::S3::Bucket", "Properties": {"BucketName": "kept"}}}),
    )
    s3 = local.client("s3")
    s3.put_object(Bucket="kept", Key="a", Body=b"1")
    cfn.delete_stack(StackName="demo")
    stack = wait_for_stack(local, cfn, "demo")
    assert stack["StackStatus"] == "DELETE_FAILED"
    s3.delete_object(Bucket="kept", Key="a")
    cfn.delete_stack(StackName="demo")
    local.until(lambda: not s3.list_buckets()["Buckets"])


def role(**properties):
    trust = {"Version": "2012-10-17", "Statement": []}
    return {
        "Type": "AWS::IAM::Role",
        "Properties": {"AssumeRolePolicyDocument": trust, **properties},
    }


@pytest.mark.parametrize(
    ("properties", "needed"),
    [({}, "CAPABILITY_IAM"), ({"RoleName": "ours"}, "CAPABILITY_NAMED_IAM")],
)
def test_a_change_set_with_roles_needs_its_capability(cfn, properties, needed):
    """Want a stronger word where the template names the role itself."""
    request = {
        "StackName": "demo", "ChangeSetType": "CREATE",
        "TemplateBody": body({"Role": role(**properties)}),
    }  # fmt: skip
    for number, given in enumerate(([], ["CAPABILITY_IAM"], ["CAPABILITY_NAMED_IAM"])):
        call = {**request, "ChangeSetName": f"c{number}", "Capabilities": given}
        if given and (needed in given or given == ["CAPABILITY_NAMED_IAM"]):
            cfn.create_change_set(**call)
        else:
            with pytest.raises(ClientError, match=rf"Requires capabilities : \[{needed}\]"):
                cfn.create_change_set(**call)


def test_a_stack_sets_its_buckets_versioning_and_policy(local, cfn):
    """Make both, then suspend the one and delete the other."""
    s3 = local.client("s3")
    deny = {"Effect": "Deny", "Principal": "*", "Action": "s3:PutObject", "Resource": "*",
            "Condition": {"StringEquals": {"aws:PrincipalArn": "nobody"}}}  # fmt: skip
    policy = {
        "Type": "AWS::S3::BucketPolicy",
        "Properties": {"Bucket": {"Ref": "Bucket"}, "PolicyDocument": {"Statement": [deny]}},
    }
    versioned = {"Status": "Enabled"}
    bucket = {
        "Type": "AWS::S3::Bucket",
        "Properties": {"BucketName": "ours", "VersioningConfiguration": versioned},
    }
    first = create(local, cfn, body({"Bucket": bucket, "Policy": policy}))
    assert s3.get_bucket_versioning(Bucket="ours")["Status"] == "Enabled"
    assert json.loads(s3.get_bucket_policy(Bucket="ours")["Policy"])["Statement"] == [deny]
    s3.put_object(Bucket="ours", Key="x", Body=b"")
    s3.delete_object(Bucket="ours", Key="x")
    plain = {"Type": "AWS::S3::Bucket", "Properties": {"BucketName": "ours"}}
    change_set = cfn.create_change_set(
        StackName="demo", ChangeSetName="second", ChangeSetType="UPDATE",
        TemplateBody=body({"Bucket": plain}),
    )  # fmt: skip
    cfn.execute_change_set(ChangeSetName=change_set["Id"])
    assert wait_for_stack(local, cfn, first["StackId"])["StackStatus"] == "UPDATE_COMPLETE"
    assert s3.get_bucket_versioning(Bucket="ours")["Status"] == "Suspended"
    with pytest.raises(ClientError, match="NoSuchBucketPolicy"):
        s3.get_bucket_policy(Bucket="ours")
