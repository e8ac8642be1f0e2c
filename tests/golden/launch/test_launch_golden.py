"""Golden tests of every kind of launch call of the engine.

Each call is compared whole, also merged with its launch template as EC2 does it. The cluster is
examples/aws.yaml with a second type on demand and a pool in a capacity block. EC2 has no capacity
at all, so the engine tries each fallback order to its end. `TOOLKIT_GOLDEN=write` accepts a change;
read the diff.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
import pytest
import yaml
from botocore.validate import ParamValidator

from slurmplugins.model.hostlist import expand
from slurmplugins.model.launch import JobRequest
from slurmplugins.power_save.resume import resume
from tests.fakes.engine import Bench
from tests.golden.deploy.test_stack_golden import FACTS
from toolkit.config.model import ClusterConfig
from toolkit.deploy.stack import stack_template
from toolkit.render import PriceTable, StackFacts
from toolkit.render.burst import burst_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from botocore.model import Shape

ROOT = Path(__file__).parents[3]
GOLDEN = Path(__file__).parent / "expected"
OPERATIONS = {False: "RunInstances", True: "CreateFleet"}
BLOCK = {
    "count": 4,
    "shape": {"cpus": 192, "memory_gib": 2048, "gpus": 8, "gpu": "h100"},
    "offerings": [
        {
            "type": "p5.48xlarge",
            "capacity": "capacity-block",
            "zone": "us-east-1b",
            "reservation": "cr-0b10c000000000000",
        }
    ],
    "zones": ["us-east-1b"],
    "efa": 2,
}
JOBS = {
    "a10g, on demand after ten minutes": ("a10g-[001-003]", "gpu"),
    "a10g, on demand only": ("a10g-[001-003]", "urgent"),
    "cpu, spot first": ("cpu-[001-002]", "cpu"),
    "h100, reservation, EFA, placement group": ("h100-[001-002]", "large"),
    "capacity block, EFA": ("block-[001-002]", "block"),
}


def cluster() -> ClusterConfig:
    document = yaml.safe_load((ROOT / "examples" / "aws.yaml").read_text())
    document["pools"]["a10g"]["offerings"].append({"type": "g5.2xlarge", "capacity": "on-demand"})
    document["pools"]["block"] = BLOCK
    document["partitions"]["block"] = {"pools": ["block"], "max_time": "1-00:00:00"}
    return ClusterConfig.model_validate_json(json.dumps(document))


def burst(config: ClusterConfig) -> dict[str, Any]:
    stack = StackFacts(
        bucket="research-bucket",
        secret_id="research/slurm-key",
        subnets={zone: f"subnet-{zone[-1]}" for zone in config.network.zones},
        shared_dns="fs-01.fsx.us-east-1.amazonaws.com",
        shared_mount="shared",
        head_volume="vol-0123456789abcdef0",
        backup_bucket="research-bucket-bak",
    )
    document: dict[str, Any] = json.loads(
        burst_json(config, stack, PriceTable(on_demand={}, spot={}))
    )
    return document


@pytest.fixture(scope="module")
def sent(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    """The arguments of every call, by job."""
    calls_by_case = {}
    for name, (hostlist, partition) in JOBS.items():
        bench = Bench(tmp_path_factory.mktemp("launch"), **burst(cluster()))
        offerings = [item for pool in bench.config.pools.values() for item in pool.offerings]
        bench.cloud.capacity = {item.key: 0 for item in offerings}
        bench.cloud.blocks = {item.reservation for item in offerings if item.block}
        nodes = expand(hostlist)
        bench.slurm.start(7, nodes)
        bench.slurm.queue[7].submitted_at = bench.clock.now() - 900
        resume(bench.engine, [JobRequest(7, nodes, partition)])
        calls_by_case[name] = bench.cloud.sent
    return calls_by_case


class Intrinsics(yaml.SafeLoader):
    """CloudFormation's functions as text: their results do not matter here."""


Intrinsics.add_multi_constructor("!", lambda _loader, suffix, node: f"!{suffix} {node.value}")


@pytest.fixture(scope="module")
def templates() -> dict[str, dict[str, Any]]:
    """The launch templates of the stack, by name, without their user data."""
    stack = yaml.load(stack_template(cluster(), FACTS), Intrinsics)  # noqa: S506 - a SafeLoader
    launch_templates = [
        item["Properties"]
        for item in stack["Resources"].values()
        if item["Type"] == "AWS::EC2::LaunchTemplate"
    ]
    for item in launch_templates:
        item["LaunchTemplateData"].pop("UserData")
    return {item["LaunchTemplateName"]: item["LaunchTemplateData"] for item in launch_templates}


def is_fleet(call: Mapping[str, Any]) -> bool:
    return "LaunchTemplateConfigs" in call


def launches(
    call: Mapping[str, Any], templates: Mapping[str, dict[str, Any]]
) -> list[dict[str, Any]]:
    """Return the arguments of RunInstances that the call amounts to.

    A fleet's call has one set of arguments for each instance type.
    """
    if not is_fleet(call):
        launch_arguments = {key: value for key, value in call.items() if key != "LaunchTemplate"}
        return [merged(launch_arguments, templates[call["LaunchTemplate"]["LaunchTemplateName"]])]
    (config,) = call["LaunchTemplateConfigs"]
    data = templates[config["LaunchTemplateSpecification"]["LaunchTemplateName"]]
    tags = [item for item in call["TagSpecifications"] if item["ResourceType"] != "fleet"]
    counts = {"MinCount": 1, "MaxCount": call["TargetCapacitySpecification"]["TotalTargetCapacity"]}
    return [
        merged({**override, **counts, "TagSpecifications": tags}, data)
        for override in config["Overrides"]
    ]


def merged(call: Mapping[str, Any], data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the call's arguments over the template's.

    The tags of each resource are merged key by key.
    """
    tags: dict[str, dict[str, str]] = {}
    for item in (*data["TagSpecifications"], *call["TagSpecifications"]):
        pairs = {pair["Key"]: pair["Value"] for pair in item["Tags"]}
        tags[item["ResourceType"]] = tags.get(item["ResourceType"], {}) | pairs
    specifications = [
        {"ResourceType": kind, "Tags": [{"Key": k, "Value": v} for k, v in pairs.items()]}
        for kind, pairs in tags.items()
    ]
    return {**data, **call, "TagSpecifications": specifications}


def readable(call: Mapping[str, Any]) -> dict[str, Any]:
    """Check and replace the values that differ between runs."""
    (attempt,) = {
        pair["Value"]
        for item in call["TagSpecifications"]
        for pair in item["Tags"]
        if pair["Key"] == "toolkit:attempt"
    }
    assert call["ClientToken"] == hashlib.sha256(attempt.encode()).hexdigest()
    text = (
        json.dumps(call).replace(call["ClientToken"], "THE TOKEN").replace(attempt, "THE ATTEMPT")
    )
    arguments: dict[str, Any] = json.loads(text)
    return arguments


def test_launch_calls_are_as_reviewed(sent, templates):
    """Compare the calls with their files, so that review shows changes."""
    calls = {name: [readable(call) for call in case_calls] for name, case_calls in sent.items()}
    merged_launches = {
        # One launch of each kind is enough: all zones look the same.
        name: list(
            {
                launch["InstanceType"] + str(launch.get("InstanceMarketOptions")): launch
                for call in reversed(case_calls)
                for launch in launches(call, templates)
            }.values()
        )
        for name, case_calls in calls.items()
    }
    for name, value in {"calls.json": calls, "with-templates.json": merged_launches}.items():
        text = json.dumps(value, indent=1, sort_keys=True) + "\n"
        path = GOLDEN / name
        if os.environ.get("TOOLKIT_GOLDEN") == "write":
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        assert text == path.read_text(), f"{name} differs; TOOLKIT_GOLDEN=write accepts it"


def test_the_cases_cover_efa_on_several_cards_and_placement_groups(sent, templates):
    calls = [call for case_calls in sent.values() for call in case_calls]
    with_templates = [launch for call in calls for launch in launches(call, templates)]
    interfaces = [item for launch in with_templates for item in launch.get("NetworkInterfaces", ())]
    assert "efa" in {item.get("InterfaceType") for item in interfaces}
    assert max(item.get("NetworkCardIndex", 0) for item in interfaces) > 1
    assert any("GroupName" in launch.get("Placement", {}) for launch in with_templates)


def test_the_cases_cover_every_kind_of_launch(sent):
    calls = [call for case_calls in sent.values() for call in case_calls]
    markets = {call.get("InstanceMarketOptions", {}).get("MarketType", "") for call in calls}
    fleets = {
        call["TargetCapacitySpecification"]["DefaultTargetCapacityType"]
        for call in calls
        if is_fleet(call)
    }
    reserved = {"CapacityReservationSpecification" in call for call in calls}
    assert (markets, fleets, reserved) == (
        {"", "spot", "capacity-block"},
        {"spot", "on-demand"},
        {True, False},
    )


@pytest.fixture(scope="module")
def service() -> Any:
    """EC2's own service model, as botocore has it."""
    keys = {"aws_access_key_id": "none", "aws_secret_access_key": "none"}  # else boto3 calls IMDS
    return boto3.client("ec2", "us-east-1", **keys).meta.service_model


def wrong_values(value: Any, shape: Shape, path: str = "") -> Iterator[str]:
    """Yield values that the model's enumerations lack.

    ParamValidator does not check enumerations.
    """
    if shape.type_name == "structure":
        for key, item in value.items():
            yield from wrong_values(item, shape.members[key], f"{path}.{key}")
    elif shape.type_name == "list":
        for item in value:
            yield from wrong_values(item, shape.member, path)
    elif getattr(shape, "enum", None) and shape.name != "InstanceType" and value not in shape.enum:
        yield f"{path}: {value}"


def problems(value: Any, shape: Shape) -> str:
    report = ParamValidator().validate(value, shape).generate_report()
    return report or "; ".join(wrong_values(value, shape))


def test_every_launch_call_and_template_fits_ec2s_service_model(sent, templates, service):
    for call in (call for case_calls in sent.values() for call in case_calls):
        shape = service.operation_model(OPERATIONS[is_fleet(call)]).input_shape
        assert problems(call, shape) == ""
    data = service.shape_for("RequestLaunchTemplateData")
    for name, item in templates.items():
        assert problems(item, data) == "", name


def interface_problems(launch: Mapping[str, Any]) -> Iterator[str]:
    """Yield the errors of a launch's network interfaces.

    Source: RunInstances, and "Maximize network bandwidth with multiple network cards".
    """
    cards = launch.get("NetworkInterfaces", ())
    if cards and {"SubnetId", "SecurityGroupIds"}.intersection(launch):
        yield "network interfaces and a subnet or security groups of the instance"
    places = [(item["NetworkCardIndex"], item["DeviceIndex"]) for item in cards]
    if len({card for card, _ in places}) < len(places):
        yield "two interfaces on one card"
    if cards and places[0] != (0, 0):
        yield "no primary interface on the first card"
    if any((card == 0) != (device == 0) for card, device in places):
        yield "a second primary interface"
    if any(item["InterfaceType"] == "efa-only" for item in cards[:1]):
        yield "the primary interface has no address"


def test_no_launch_call_has_an_invalid_network_or_placement(sent, templates):
    for name, case_calls in sent.items():
        for launch in (launch for call in case_calls for launch in launches(call, templates)):
            assert list(interface_problems(launch)) == [], name
            assert launch.get("NetworkInterfaces") or launch["SubnetId"], name
            market = launch.get("InstanceMarketOptions", {}).get("MarketType", "")
            assert not (market == "capacity-block" and "Placement" in launch), name


def test_no_launch_template_names_a_market_or_a_reservation(templates):
    """Check that each template leaves these keys to the calls.

    A fleet refuses a template with market options.
    """
    for name, item in templates.items():
        own = {"InstanceMarketOptions", "CapacityReservationSpecification", "InstanceType"}
        assert not own.intersection(item), name
