"""The programs' calls with the roles of a deployed stack, none of them denied."""

from __future__ import annotations

import json

import boto3
import pytest
from botocore.exceptions import ClientError
from moto.iam.models import iam_backends

from slurmplugins.cloud import describe_instances, ec2_messages, tags
from slurmplugins.cloud.assumed_role import AssumedRole
from slurmplugins.cloud.ec2 import Ec2
from slurmplugins.cloud.job_role import JobRole
from slurmplugins.cloud.stores import S3Store, SecretStore
from slurmplugins.errors import Denied
from slurmplugins.model.instance import Lifecycle, Offering
from slurmplugins.model.launch import LaunchRequest
from slurmplugins.system.clock import SystemClock
from tests.contract.deploy.conftest import LEAVES_A_CLOUD
from toolkit import cli
from toolkit.datasets.chunks import CHUNK
from toolkit.datasets.derive.derive import derived
from toolkit.datasets.settings import DatasetSettings
from toolkit.datasets.store.add import add
from toolkit.datasets.store.catalog import Catalog
from toolkit.datasets.store.s3_store import S3Store as DatasetStore
from toolkit.deploy import names
from toolkit.deploy.session import Clients
from toolkit.deploy.stack_outputs import stack_facts
from toolkit.local.aws.iam.principals import role_of_profile
from toolkit.local.options import ACCOUNT
from toolkit.render.burst import launch_template
from toolkit.training.io.s3_bucket import MultipartUpload, S3Bucket

pytestmark = LEAVES_A_CLOUD

OFFERINGS = (
    "      - {type: g5.xlarge, capacity: on-demand}\n      - {type: g5.2xlarge, capacity: spot}\n"
)


class Stack:
    """A deployed stack, with clients that have an instance's own credentials."""

    def __init__(self, config) -> None:
        self.config, self.cloud = config.config, config.actor.cloud
        self.record = self.cloud.record
        self.bucket = names.bucket(self.config, config.actor.clients.account)
        ec2 = config.actor.clients.client("ec2")
        self.subnets = {
            item["AvailabilityZone"]: item["SubnetId"] for item in ec2.describe_subnets()["Subnets"]
            if any(tag["Value"] == self.config.cluster for tag in item.get("Tags", ()))
        }  # fmt: skip
        self.count = len(self.cloud.tables.instances)
        self.head = next(
            id_ for id_, item in self.cloud.tables.instances.items()
            if item.tags.get("toolkit:role") == "head"
        )  # fmt: skip

    def config_client(self, service):
        """Return a client with the owner's key."""
        return Clients(self.config).client(service)

    def client(self, service, instance_id):
        instance = self.cloud.tables.instances[instance_id]
        role = role_of_profile(str(instance.row.iam_instance_profile["Arn"]))
        given = self.cloud.sessions.of_instance(
            instance_id, instance.region, role, self.cloud.tables.wall()
        )
        return boto3.client(
            service,
            region_name=instance.region,
            endpoint_url=str(self.config.aws.endpoint_url),
            aws_access_key_id=given.key,
            aws_secret_access_key=given.secret,
            aws_session_token=given.token,
        )

    def engine(self, instance_id):
        client = self.client("ec2", instance_id)
        describe_instances.attach(client)
        return Ec2(self.config.cluster, lambda: client)

    def request(self, attempt, lifecycle=Lifecycle.SPOT, types=("g5.xlarge",), **more):
        first, *others = [Offering(kind, lifecycle, "us-east-1a", "1.0") for kind in types]
        return LaunchRequest(
            attempt=attempt, cluster=self.config.cluster, pool="gpu", partition="spot",
            launch_template=launch_template(self.config.cluster, "gpu"),
            subnet=self.subnets["us-east-1a"],
            offering=first, others=tuple(others), nodes=("gpu-001", "gpu-002"), **more,
        )  # fmt: skip

    def node(self):
        """Launch a compute node, and return its instance's id."""
        attempt = f"node-{len(self.cloud.tables.instances)}"
        (node, _) = self.engine(self.head).launch(self.request(attempt), lambda: None).instances
        return node.id

    def role(self, name):
        """Return the ARN of the stack's role."""
        return next(
            str(role.arn) for role in iam_backends[ACCOUNT]["aws"].roles.values()
            if name in role.name
        )  # fmt: skip

    def job_role(self):
        """Return the ARN that a node reads in its node.json."""
        return self.role("JobRole")

    def environment(self, given):
        """Return the variables of an SDK with these credentials."""
        return {
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": str(self.config.aws.endpoint_url),
            "AWS_ACCESS_KEY_ID": given.key_id,
            "AWS_SECRET_ACCESS_KEY": given.secret,
            "AWS_SESSION_TOKEN": given.token,
        }

    def job_environment(self, role, user, job):
        """Return the variables by which a job's SDK finds everything."""
        return self.environment(role.credentials(user=user, account="vision", job=job))

    def job_client(self, role, user, job):
        return self.s3(role.credentials(user=user, account="vision", job=job))

    def s3(self, given):
        """Return a client of S3 with these credentials."""
        variables = self.environment(given)
        return boto3.client(
            "s3",
            region_name=variables["AWS_DEFAULT_REGION"],
            endpoint_url=variables["AWS_ENDPOINT_URL"],
            aws_access_key_id=variables["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=variables["AWS_SECRET_ACCESS_KEY"],
            aws_session_token=variables["AWS_SESSION_TOKEN"],
        )

    def bundle(self):
        """Return the key of the head's bundle."""
        return names.bundle(self.cloud.tables.instances[self.head].tags[tags.BUNDLE])

    def denied(self):
        return [call for call in self.record.to_json()["calls"] if not call["allowed"]]

    def settle(self):
        """Let instances reach the states that are due."""
        tables = self.cloud.tables
        while any(item.state in {"pending", "shutting-down"} for item in tables.instances.values()):
            self.cloud.machine_controller.tick()

    def clear(self):
        """Leave neither nodes nor judged calls of an earlier test."""
        nodes = [
            id_ for id_, item in self.cloud.tables.instances.items()
            if item.tags.get("toolkit:role") == "compute" and item.state != "terminated"
        ]  # fmt: skip
        if nodes:
            self.config_client("ec2").terminate_instances(InstanceIds=nodes)
            self.settle()
        self.record._counts.clear()


@pytest.fixture(scope="module")
def deployed(shared):
    """A deployed cluster with buckets for data and checkpoints."""
    shared.edit("      - {type: g5.xlarge, capacity: on-demand}\n", OFFERINGS)
    shared.edit("training:\n", "data:\n  store: bucket\n\ntraining:\n  checkpoints: bucket\n")
    assert cli.run(["deploy", "--config", str(shared.path)]) == 0
    return shared


@pytest.fixture
def stack(deployed):
    found = Stack(deployed)
    found.clear()
    return found


def test_the_engine_does_its_work_with_the_head_role_and_is_never_denied(stack):
    engine = stack.engine(stack.head)
    before = {item.id for item in engine.instances()}
    started = []
    for number, (lifecycle, types) in enumerate(
        (lifecycle, types)
        for lifecycle in (Lifecycle.SPOT, Lifecycle.ON_DEMAND)
        for types in (("g5.xlarge",), ("g5.xlarge", "g5.2xlarge"))
    ):
        result = engine.launch(stack.request(f"a{number}", lifecycle, types), lambda: None)
        started += result.instances
    stack.settle()
    ids = [item.id for item in started]
    assert len(ids) == 8
    assert engine.retag_nodes({ids[0]: "gpu-003"}, lambda _: True)
    engine.console(ids[0])
    engine.health()
    assert stack.head in before
    assert {item.id for item in engine.instances()} == {*before, *ids}
    assert engine.terminate(ids) == set(ids)
    assert stack.denied() == []


def changed_tags(kinds, role):
    """Return tags of a launch that claim another role."""
    values = {tags.CLUSTER: "demo", tags.ROLE: role}
    return [{"ResourceType": kind, "Tags": ec2_messages.tag_pairs(values)} for kind in kinds]


def test_the_head_role_launches_tagged_nodes_of_listed_types_with_imdsv2_alone(stack):
    """Send what resume sends with one change; every call is denied."""
    client, request = stack.client("ec2", stack.head), stack.request("refused", Lifecycle.ON_DEMAND)
    created = ("instance", "volume", "network-interface")
    for changes in (
        {"TagSpecifications": changed_tags(created, "head")},
        {"TagSpecifications": changed_tags(created, "builder")},
        {"InstanceType": "p5.48xlarge"},
        {"MetadataOptions": {"HttpTokens": "optional"}},
    ):
        with pytest.raises(ClientError, match="UnauthorizedOperation"):
            client.run_instances(**ec2_messages.run_instances(request) | changes)
    fleet = ec2_messages.create_fleet(request)
    foreign = {"TagSpecifications": changed_tags(("fleet", "instance"), "head")}
    with pytest.raises(ClientError, match="UnauthorizedOperation"):
        client.create_fleet(**fleet | foreign)
    fleet["LaunchTemplateConfigs"][0]["Overrides"][0]["InstanceType"] = "p5.48xlarge"
    with pytest.raises(ClientError, match="UnauthorizedOperation"):
        client.create_fleet(**fleet)
    assert len(stack.cloud.tables.instances) == stack.count


def test_the_bucket_refuses_bundles_of_the_clusters_roles_whatever_their_policies_say(
    stack, request
):
    """Give the head's role all of S3, as by mistake."""
    backend = iam_backends[ACCOUNT]["aws"]
    role = next(role for role in backend.roles.values() if "HeadRole" in role.name)
    everything = {"Statement": [{"Effect": "Allow", "Action": "s3:*", "Resource": "*"}]}
    role.put_policy("mistake", json.dumps(everything))
    request.addfinalizer(lambda: role.delete_policy("mistake"))
    s3 = stack.client("s3", stack.head)
    s3.put_object(Bucket=stack.bucket, Key="anywhere/else", Body=b"")
    refused = "explicit deny in a resource-based policy"
    with pytest.raises(ClientError, match=refused):
        s3.put_object(Bucket=stack.bucket, Key=stack.bundle(), Body=b"code")
    with pytest.raises(ClientError, match=refused):
        s3.delete_object(Bucket=stack.bucket, Key=stack.bundle())
    with pytest.raises(ClientError, match=refused):
        s3.delete_bucket_policy(Bucket=stack.bucket)
    with pytest.raises(ClientError, match=refused):
        s3.put_bucket_versioning(
            Bucket=stack.bucket, VersioningConfiguration={"Status": "Suspended"}
        )


def test_the_head_reads_its_key_and_bundle_and_keeps_its_records(stack):
    store = S3Store(stack.bucket, lambda: stack.client("s3", stack.head))
    assert store.create("ledger/instances/i-1.json", {"a": 1})
    assert not store.create("ledger/instances/i-1.json", {"a": 2})
    store.put("status/head.json", {"state": "ok"})
    store.put_text("status/head.log", "all of it")
    assert store.get("ledger/instances/i-2.json") is None
    s3 = stack.client("s3", stack.head)
    assert s3.get_object(Bucket=stack.bucket, Key=stack.bundle())["Body"].read()
    secrets = SecretStore(lambda: stack.client("secretsmanager", stack.head))
    assert len(secrets.get(names.secret(stack.config))) >= 64
    assert stack.denied() == []


def test_a_compute_node_reads_its_key_and_is_denied_the_rest(stack):
    node = stack.node()
    secrets = SecretStore(lambda: stack.client("secretsmanager", node))
    assert len(secrets.get(names.secret(stack.config))) >= 64
    assert stack.denied() == []
    s3 = stack.client("s3", node)
    with pytest.raises(Denied):
        stack.engine(node).instances()
    for key in (stack.bundle(), "checkpoints/ada/run/x"):
        with pytest.raises(ClientError, match="AccessDenied"):
            s3.get_object(Bucket=stack.bucket, Key=key)
    with pytest.raises(ClientError, match="AccessDenied"):
        s3.put_object(Bucket=stack.bucket, Key="checkpoints/ada/run/x", Body=b"")
    assert len(stack.denied()) == 4


def test_a_jobs_credentials_keep_its_users_checkpoints_and_nobody_elses(stack):
    role = JobRole(stack.job_role(), lambda: stack.client("sts", stack.node()), SystemClock())
    s3 = stack.job_client(role, user="ada", job=7)
    bucket = S3Bucket(stack.bucket, s3)
    for _ in range(2):  # the second time it finds the parts of the first
        upload = MultipartUpload(bucket, "checkpoints/ada/run/step-1/model")
        upload.send(0, b"weights")
    upload.complete()
    assert [item["Key"] for item in bucket.objects("checkpoints/ada/")]
    bucket.abort({"Key": "checkpoints/ada/run/step-2", "UploadId": "none"})
    s3.delete_objects(
        Bucket=stack.bucket, Delete={"Objects": [{"Key": "checkpoints/ada/run/step-1/model"}]}
    )
    assert stack.denied() == []
    assert bucket.call("head_object", if_absent=None, Key="checkpoints/ada/none") is None
    stack.job_client(role, user="grace", job=8).put_object(
        Bucket=stack.bucket, Key="checkpoints/grace/run/x", Body=b"hers"
    )
    with pytest.raises(ClientError, match="7-ada is not authorized to perform: s3:PutObject"):
        s3.put_object(Bucket=stack.bucket, Key="checkpoints/grace/run/x", Body=b"his")
    with pytest.raises(ClientError, match="AccessDenied"):
        bucket.call("get_object", if_absent=None, Key="checkpoints/grace/run/x")


def dataset_keys(bucket):
    """Return the keys of what a dataset's readers need."""
    kinds = ("objects", "manifests", "names", "derivations")
    return {item["Key"] for kind in kinds for item in bucket.objects(f"data/{kind}/")}


def test_a_jobs_credentials_add_a_dataset_and_never_replace_one(stack, tmp_path):
    role = JobRole(stack.job_role(), lambda: stack.client("sts", stack.node()), SystemClock())
    ada = stack.job_client(role, user="ada", job=7)
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "small").write_bytes(b"small")
    (tmp_path / "set" / "large").write_bytes(b"y" * (CHUNK + 1))
    catalog = Catalog(DatasetStore(stack.bucket, "data", client=ada))
    bucket = S3Bucket(stack.bucket, ada)
    before = dataset_keys(bucket)
    added = add(catalog, tmp_path / "set", name="digits")
    again = Catalog(DatasetStore(stack.bucket, "data", client=stack.job_client(role, "grace", 8)))
    assert add(again, tmp_path / "set", name="digits").version == added.version
    assert catalog.resolve("digits@1") == added.version
    kept = dataset_keys(bucket) - before
    assert len(kept) == 4  # two contents, the manifest, the name
    for key in kept:
        with pytest.raises(ClientError, match="AccessDenied"):
            ada.put_object(Bucket=stack.bucket, Key=key, Body=b"other")
        with pytest.raises(ClientError, match="AccessDenied"):
            ada.delete_object(Bucket=stack.bucket, Key=key)


def test_two_nodes_that_derive_one_dataset_agree_on_the_first_result(stack, tmp_path, monkeypatch):
    """The later job may not replace the record, and needs not."""
    role = JobRole(stack.job_role(), lambda: stack.client("sts", stack.node()), SystemClock())
    for name, value in stack.job_environment(role, "ada", 7).items():
        monkeypatch.setenv(name, value)
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw" / "x").write_bytes(b"x")
    (tmp_path / "code").write_text("the same on both nodes")
    first_results = []

    def derive(node, build):
        where = DatasetSettings(f"s3://{stack.bucket}/data", tmp_path / node, cache_limit=1 << 20)
        return derived(["raw@1"], build, code=[tmp_path / "code"], where=where, name="made")

    def quick(inputs, output, params):
        (output / "x").write_bytes(b"first")

    def slow(inputs, output, params):
        first_results.append(derive("node-2", quick))
        (output / "x").write_bytes(b"second")

    catalog = Catalog(DatasetStore(stack.bucket, "data", client=stack.job_client(role, "ada", 7)))
    add(catalog, tmp_path / "raw", name="raw")
    second = derive("node-1", slow)
    (first,) = first_results
    assert (first.reused, second.reused) == (False, True)
    assert second.version == first.version == catalog.resolve("made")
    # A missing object is looked for in the list: who may not list the bucket is told 403.
    assert {call["action"] for call in stack.denied()} <= {"s3:ListBucket"}


def test_mlflow_keeps_its_artifacts_with_its_own_role_and_reaches_nothing_else(stack):
    arn = stack_facts(stack.config, Clients(stack.config)).mlflow_role
    assert arn == stack.role("MlflowRole")
    role = AssumedRole(arn, lambda: stack.client("sts", stack.head), SystemClock())
    s3 = stack.s3(role.credentials("mlflow"))
    place = {"Bucket": stack.bucket, "Key": "mlflow/1/run/artifacts/note.txt"}
    s3.put_object(**place, Body=b"kept")
    assert s3.get_object(**place)["Body"].read() == b"kept"
    s3.list_objects_v2(Bucket=stack.bucket, Prefix="mlflow/1/run/artifacts/", Delimiter="/")
    s3.delete_object(**place)
    assert stack.denied() == []
    for key in (stack.bundle(), "ledger/instances/i-1.json", "checkpoints/ada/run/x"):
        with pytest.raises(ClientError, match="AccessDenied"):
            s3.get_object(Bucket=stack.bucket, Key=key)
    with pytest.raises(ClientError, match="AccessDenied"):
        s3.list_objects_v2(Bucket=stack.bucket)


def test_the_head_has_no_right_to_artifacts_itself_and_a_node_no_mlflow_role(stack):
    with pytest.raises(ClientError, match="AccessDenied"):
        stack.client("s3", stack.head).put_object(
            Bucket=stack.bucket, Key="mlflow/1/run/artifacts/x", Body=b""
        )
    node = stack.node()
    role = AssumedRole(stack.role("MlflowRole"), lambda: stack.client("sts", node), SystemClock())
    with pytest.raises(Denied):
        role.credentials("mlflow")


def test_no_instance_reads_a_parameter_of_the_account(stack):
    stack.config_client("ssm").put_parameter(Name="db", Value="secret", Type="String")
    for instance_id in (stack.head, stack.node()):
        with pytest.raises(ClientError, match="AccessDenied"):
            stack.client("ssm", instance_id).get_parameter(Name="db")


def test_the_tag_of_the_bundle_is_written_before_the_head_looks_for_it(stack):
    found = stack.config_client("s3").head_object(Bucket=stack.bucket, Key=stack.bundle())
    assert found["ContentLength"] > 0
