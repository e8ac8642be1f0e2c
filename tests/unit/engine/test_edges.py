"""The edges: what is sent to EC2 and Slurm, what is read from them, burst.json, IMDS, the log."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from slurmplugins import config, errors, identity, names, offerings
from slurmplugins.cloud import codes, spec
from slurmplugins.cloud.ec2 import Ec2
from slurmplugins.cloud.session import translate
from slurmplugins.errors import ConfigError, MetadataError, SlurmRefused, SlurmUnreachable
from slurmplugins.imds import Imds
from slurmplugins.log import Log
from slurmplugins.model import Assignment, LaunchRequest, Lifecycle, Offering
from slurmplugins.slurm import COMMENT_LENGTH, ScontrolSlurm
from tests.fakes.clock import FakeClock
from tests.fakes.engine import burst
from tests.fakes.runner import FakeRunner

if TYPE_CHECKING:
    from collections.abc import Callable

G = names.expand("gpu-[001-003]")
SPOT = Offering("g5.xlarge", Lifecycle.SPOT, "us-east-1a", "0.4024")


def request(offering: Offering = SPOT) -> LaunchRequest:
    return LaunchRequest("a1", "demo", "gpu", "spot", "demo-gpu", "subnet-a", offering, G)


# EC2


def test_a_launch_is_all_or_nothing_and_carries_its_tags():
    sent = spec.run_instances(request())
    tags = {item["Key"]: item["Value"] for item in sent["TagSpecifications"][0]["Tags"]}
    assert (sent["MinCount"], sent["MaxCount"]) == (3, 3)
    assert sent["InstanceMarketOptions"]["MarketType"] == "spot"
    assert tags == {
        "Name": "demo-gpu",
        "toolkit:cluster": "demo",
        "toolkit:role": "compute",
        "toolkit:pool": "gpu",
        "toolkit:partition": "spot",
        "toolkit:nodes": "gpu-[001-003]",
        "toolkit:attempt": "a1",
        "toolkit:price": "0.4024",
    }


def test_on_demand_has_no_market_options():
    on_demand = Offering("g5.xlarge", Lifecycle.ON_DEMAND, "us-east-1a", "1")
    assert "InstanceMarketOptions" not in spec.run_instances(request(on_demand))


@pytest.mark.parametrize("sent", [spec.run_instances, spec.create_fleet])
def test_the_token_that_is_sent_is_the_attempts_whatever_else_is_asked(
    sent: Callable[[LaunchRequest], dict[str, Any]],
):
    first = request()
    others = [replace(first, attempt="a2"), replace(first, nodes=G[:1])]
    assert [sent(item)["ClientToken"] for item in (first, *others)] == [
        spec.client_token("a1"), spec.client_token("a2"), spec.client_token("a1"),
    ]  # fmt: skip


def test_the_token_is_of_the_attempt_and_fits():
    assert spec.client_token("a1") == spec.client_token("a1") != spec.client_token("a2")
    assert len(spec.client_token("a1")) <= 64


@pytest.mark.parametrize(
    ("tag", "index", "expected"),
    [
        ({"toolkit:nodes": "gpu-[001-003]"}, 2, "gpu-003"),
        ({"toolkit:nodes": "gpu-[001-003]"}, 3, None),
        ({"toolkit:nodes": "gpu-[001-003]"}, -1, None),
        ({"toolkit:nodes": "gpu-[001-003]", "toolkit:node": "gpu-9"}, 0, "gpu-9"),
        ({"toolkit:node": "x;y"}, 0, None),
        ({"toolkit:nodes": "gpu-["}, 0, None),
        ({}, 0, None),
    ],
)
def test_a_machine_is_the_node_its_tags_and_index_say(
    tag: dict[str, str], index: int, expected: str | None
):
    assert identity.node_of(tag, index, "i-1") == expected


def test_when_and_why_a_machine_ended_is_read_from_its_description():
    found = spec.instance(
        {
            "InstanceId": "i-1",
            "State": {"Name": "terminated"},
            "StateReason": {"Code": "Server.SpotInstanceTermination"},
            "StateTransitionReason": "Service initiated (2026-11-21 10:15:00 GMT)",
            "LaunchTime": datetime(2026, 11, 21, 10, tzinfo=UTC),
        }
    )
    assert found.ended_at == datetime(2026, 11, 21, 10, 15, tzinfo=UTC).timestamp()
    assert found.end_code == "Server.SpotInstanceTermination"


def test_every_code_is_in_one_class_only():
    listed = [code for _, group in codes._BY_CLASS for code in group]
    assert len(listed) == len(set(listed))


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("InsufficientInstanceCapacity", errors.Capacity),
        ("VcpuLimitExceeded", errors.Quota),
        ("RequestLimitExceeded", errors.Throttled),
        ("UnauthorizedOperation", errors.Denied),
        ("NeverSeenBefore", errors.UnknownCloudError),
    ],
)
def test_codes_have_their_class_and_keep_their_name(code: str, kind: type[errors.CloudError]):
    found = codes.error(code, "text")
    assert type(found) is kind
    assert found.code == code


def test_only_what_a_repeat_can_mend_is_retryable():
    retryable = {kind for kind in codes.CLASSES.values() if kind.retryable}
    assert retryable == {errors.Throttled, errors.CloudUnreachable}


class Answers:
    """A boto3 client that gives prepared answers."""

    def __init__(self, **answers: Any) -> None:
        self.answers = answers
        self.calls: list[tuple[str, dict[str, Any]]] = []

    def __getattr__(self, name: str) -> Any:
        def call(**arguments: Any) -> Any:
            self.calls.append((name, arguments))
            answer = self.answers[name]
            if isinstance(answer, Exception):
                raise answer
            return answer.pop(0) if isinstance(answer, list) else answer

        return call


def described(number: int) -> dict[str, Any]:
    return {
        "InstanceId": f"i-{number}",
        "State": {"Name": "pending"},
        "AmiLaunchIndex": number,
        "Tags": [
            {"Key": "toolkit:nodes", "Value": "gpu-[001-003]"},
            {"Key": "toolkit:cluster", "Value": "demo"},
        ],
    }


def test_an_answer_with_too_few_machines_is_a_failure_and_they_are_ended():
    listed = {"Reservations": [{"Instances": [described(0)]}]}
    over = {"InstanceId": "i-0", "CurrentState": {"Name": "shutting-down"}}
    client = Answers(
        run_instances={"Instances": [described(0)]},
        describe_instances=listed,
        terminate_instances={"TerminatingInstances": [over]},
    )
    with pytest.raises(errors.CloudError, match="got 1"):
        Ec2("demo", lambda: client).launch(request())
    assert client.calls[-1] == ("terminate_instances", {"InstanceIds": ["i-0"]})


@pytest.mark.parametrize(
    ("code", "kind", "retryable"),
    [
        ("UnauthorizedOperation", errors.Denied, False),
        ("TagLimitExceeded", errors.InvalidRequest, False),
        ("RequestLimitExceeded", errors.UnknownCloudError, False),
        ("RequestTimeout", errors.CloudUnreachable, True),
    ],
)
def test_a_fleet_that_can_not_be_named_is_ended_unless_nobody_knows(
    code: str, kind: type[errors.CloudError], *, retryable: bool
):
    """A repeated request would be answered with the machines that were ended; one whose naming got
    no answer finds them, named or not. What only a person can mend must hold the job, or each of
    its returns would start a fleet.
    """
    from botocore.exceptions import ClientError

    client = Answers(
        create_fleet={"Instances": [{"InstanceIds": ["i-1", "i-2", "i-3"]}]},
        create_tags=ClientError({"Error": {"Code": code, "Message": "m"}}, "CreateTags"),
        terminate_instances={"TerminatingInstances": []},
    )
    fleet = replace(request(), others=(replace(SPOT, type="g5.2xlarge"),))
    with pytest.raises(errors.CloudError) as caught:
        Ec2("demo", lambda: client, FakeClock()).launch(fleet)
    assert type(caught.value) is kind
    assert caught.value.retryable is retryable
    ended = [given for name, given in client.calls if name == "terminate_instances"]
    assert ended == ([] if retryable else [{"InstanceIds": ["i-1", "i-2", "i-3"]}])


def test_machines_come_in_the_order_of_the_nodes_whatever_the_answers_order():
    client = Answers(run_instances={"Instances": [described(2), described(0), described(1)]})
    found = Ec2("demo", lambda: client).launch(request())
    assert [item.node for item in found.machines] == list(G)


def test_every_page_of_a_listing_is_read():
    pages = [
        {"Reservations": [{"Instances": [described(0)]}], "NextToken": "t"},
        {"Reservations": [{"Instances": [described(1)]}]},
    ]
    client = Answers(describe_instances=pages)
    assert len(Ec2("demo", lambda: client).instances()) == 2
    assert client.calls[1][1]["NextToken"] == "t"


def test_botocores_errors_become_ours():
    from botocore.exceptions import (
        ClientError,
        EndpointConnectionError,
        NoCredentialsError,
        ReadTimeoutError,
    )

    client_error = ClientError({"Error": {"Code": "VcpuLimitExceeded", "Message": "m"}}, "Run")
    assert isinstance(translate(client_error), errors.Quota)
    assert isinstance(translate(NoCredentialsError()), errors.Denied)
    assert isinstance(translate(ReadTimeoutError(endpoint_url="x")), errors.CloudUnreachable)
    unreachable = translate(EndpointConnectionError(endpoint_url="x"))
    assert isinstance(unreachable, errors.CloudUnreachable)
    bug = KeyError("x")
    assert translate(bug) is bug


# Slurm


def scontrol() -> tuple[ScontrolSlurm, FakeRunner]:
    runner = FakeRunner()
    return ScontrolSlurm(runner, "/usr/bin"), runner


def test_nodes_and_jobs_are_read_as_flags():
    slurm, runner = scontrol()
    node = {"name": "gpu-001", "state": ["IDLE", "CLOUD", "POWERED_DOWN"], "reason": ""}
    runner.answer("/usr/bin/scontrol", "show", "nodes", stdout=json.dumps({"nodes": [node]}))
    job = {"job_id": 4, "job_state": ["RUNNING", "CONFIGURING"], "nodes": "gpu-001"}
    newer = {"job_id": 5, "job_state": "PENDING", "restart_cnt": {"set": True, "number": 3}}
    runner.answer(
        "/usr/bin/squeue", stdout=json.dumps({"jobs": [{**job, "restart_cnt": 2}, newer]})
    )
    assert slurm.nodes()[0].off
    assert [(item.id, item.restarts, item.running) for item in slurm.jobs("gpu-001")] == [
        (4, 2, True),
        (5, 3, False),
    ]
    assert runner.commands[-1] == ["/usr/bin/squeue", "--json", "--nodelist=gpu-001"]


@pytest.mark.parametrize(
    ("written", "flags"),
    [
        (["IDLE", "CLOUD", "POWERED_DOWN"], {"IDLE", "CLOUD", "POWERED_DOWN"}),
        (["idle", "cloud", "powering_up"], {"IDLE", "CLOUD", "POWERING_UP"}),
        ("IDLE+CLOUD+POWERED_DOWN", {"IDLE", "CLOUD", "POWERED_DOWN"}),
        ("ALLOCATED+CLOUD+NOT_RESPONDING+POWERING_UP",
         {"ALLOCATED", "CLOUD", "NOT_RESPONDING", "POWERING_UP"}),
        ("DOWN*+CLOUD", {"DOWN", "NOT_RESPONDING", "CLOUD"}),
        (["IDLE", "A_FLAG_OF_2031"], {"IDLE", "A_FLAG_OF_2031"}),
        ("", set()),
        (None, set()),
    ],
)  # fmt: skip
def test_a_nodes_state_is_a_set_of_flags_however_slurm_writes_it(written: object, flags: set[str]):
    """A list since 23.02's JSON; `scontrol show node` joins them with +, and a star is silence."""
    slurm, runner = scontrol()
    node = {"name": "gpu-001", "state": written, "reason": None, "instance_id": None}
    runner.answer("/usr/bin/scontrol", "show", "nodes", stdout=json.dumps({"nodes": [node]}))
    (found,) = slurm.nodes()
    assert found.flags == flags


def test_assignments_of_any_number_take_two_processes():
    slurm, runner = scontrol()
    slurm.assign([Assignment(node, f"i-{node}", f"10.0.0.{n}", "g5") for n, node in enumerate(G)])
    assert runner.commands == [
        [
            "/usr/bin/scontrol",
            "update",
            "nodename=gpu-001,gpu-002,gpu-003",
            "nodeaddr=10.0.0.0,10.0.0.1,10.0.0.2",
        ],
        ["/usr/bin/scontrol"],
    ]
    fed = runner.calls[1][1].splitlines()
    assert fed[1] == "update nodename=gpu-002 instanceid=i-gpu-002 instancetype=g5"


@pytest.mark.parametrize("text", ["i-1\nshutdown", "i-1 state=down", "", "--x", "a" * 99])
def test_nothing_odd_reaches_scontrols_input(text: str):
    slurm, _ = scontrol()
    with pytest.raises(SlurmRefused):
        slurm.assign([Assignment(G[0], text, "10.0.0.1", "g5")])


def test_a_reason_is_plain_text_in_one_argument():
    slurm, runner = scontrol()
    slurm.down(["gpu-001"], 'toolkit: x "y"\nstate=idle `id` é')
    assert runner.commands == [
        [
            "/usr/bin/scontrol",
            "update",
            "nodename=gpu-001",
            "state=down",
            "reason=toolkit: x y state=idle id",
        ]
    ]


def comments(before: str, text: str) -> list[str]:
    slurm, runner = scontrol()
    shown = {"jobs": [{"job_id": 7, "admin_comment": before}]}
    runner.answer("/usr/bin/scontrol", "show", "job", stdout=json.dumps(shown))
    slurm.comment(7, text)
    return [argv[-1] for argv in runner.commands if argv[1] == "update"]


def test_a_comment_is_appended_to_what_others_wrote():
    assert comments("theirs", "ours") == ["admincomment=theirs | ours"]


def test_the_same_comment_is_not_repeated():
    assert comments("theirs | ours", "ours") == []


def test_a_comment_is_bounded_by_dropping_our_oldest_lines_and_nothing_of_others():
    ours = [f"toolkit: no-capacity {n} {'x' * 300}" for n in range(4)]
    before = " | ".join([ours[0], "theirs", *ours[1:3]])
    (found,) = comments(before, ours[3])
    assert found == "admincomment=" + " | ".join(["theirs", *ours[1:]])
    assert comments("x" * 5000, "ours") == [f"admincomment={'x' * 5000} | ours"]
    assert sum(map(len, ours[1:])) <= COMMENT_LENGTH


def test_a_job_is_asked_to_stop_through_its_batch_script_alone():
    slurm, runner = scontrol()
    slurm.signal(7)
    assert runner.commands == [["/usr/bin/scancel", "--batch", "--signal=USR1", "7"]]


def test_a_job_is_held_by_its_number():
    slurm, runner = scontrol()
    slurm.hold(7)
    assert runner.commands == [["/usr/bin/scontrol", "hold", "7"]]


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("slurm_load_node error: Unable to contact slurm controller", SlurmUnreachable),
        ("slurm_update error: Invalid node name specified", SlurmRefused),
    ],
)
def test_silence_and_refusal_are_told_apart(said: str, kind: type[Exception]):
    slurm, runner = scontrol()
    runner.answer("/usr/bin/scontrol", stderr=said, returncode=1)
    with pytest.raises(kind):
        slurm.power_down(["gpu-001"])


@pytest.mark.parametrize("stdout", ["", "{", "[]", "{}", '{"nodes": 3}', '{"errors": ["x"]}'])
def test_an_answer_that_can_not_be_read_is_no_answer(stdout: str):
    slurm, runner = scontrol()
    runner.answer("/usr/bin/scontrol", stdout=stdout)
    with pytest.raises(SlurmUnreachable):
        slurm.nodes()


# burst.json


def test_a_rendered_configuration_is_read():
    found = config.parse(burst())
    assert found.pools["gpu"].offerings[0] == SPOT
    assert found.pool_of(names.parse("cpu-3")) is found.pools["cpu"]
    assert found.pool_of(names.parse("cpu-9")) is None


def test_every_problem_is_told_at_once():
    broken = burst()
    broken["version"] = 2
    broken["cluster"] = "Demo;"
    broken["bucket"] = None
    gpu = broken["pools"]["gpu"]  # type: ignore[index]
    gpu["nodes"] = "gpu-[1-"
    gpu["offerings"] = [{"type": "g5", "capacity": "cheap", "zone": "mars", "price": "free"}]
    with pytest.raises(ConfigError) as caught:
        config.parse(broken)
    told = "\n".join(caught.value.problems)
    for word in ("version", "cluster", "bucket", "gpu.nodes", "capacity", "price", "'mars'"):
        assert word in told


@pytest.mark.parametrize("static", [9, -1, True, "2"])
def test_static_nodes_are_some_of_the_pools(static: object):
    broken = burst()
    broken["pools"]["gpu"]["static"] = static  # type: ignore[index]
    with pytest.raises(ConfigError, match=r"gpu\.static: expected 0 to 8 nodes"):
        config.parse(broken)


def test_a_node_in_two_pools_is_refused():
    broken = burst()
    broken["pools"]["cpu"]["nodes"] = "gpu-[008-009]"  # type: ignore[index]
    with pytest.raises(ConfigError, match="gpu-008 is in gpu too"):
        config.parse(broken)


@pytest.mark.parametrize("text", ["", "{", "[]", "null"])
def test_a_file_that_is_no_configuration_is_refused(tmp_path, text: str):
    path = tmp_path / "burst.json"
    path.write_text(text)
    with pytest.raises(ConfigError):
        config.load(path)


# Offerings


def test_when_all_offerings_failed_the_one_due_first_is_tried():
    one, two = SPOT, Offering("p4d", Lifecycle.SPOT, "us-east-1a", "1")
    known = {one.key: offerings.Setback("X", 20.0), two.key: offerings.Setback("X", 10.0)}
    assert offerings.in_turn([one, two], {}) == (one, two)
    assert offerings.in_turn([one, two], {one.key: known[one.key]}) == (two,)
    assert offerings.in_turn([one, two], known) == (two,)


@pytest.mark.parametrize("text", ["{", "[]", '{"x": 3}', '{"x": {"code": "c"}}'])
def test_a_damaged_memory_is_an_empty_one(tmp_path, text: str):
    path = tmp_path / "offerings.json"
    path.write_text(text)
    assert offerings.OfferingMemory(path, FakeClock()).setbacks() == {}


# The metadata service


class Service:
    """IMDSv2: a token is needed and ends."""

    def __init__(self) -> None:
        self.tokens = 0
        self.valid = ""
        self.statuses: dict[str, tuple[int, str]] = {}

    def request(self, method: str, path: str, headers: Any) -> tuple[int, str]:
        if method == "PUT":
            self.tokens += 1
            self.valid = f"t{self.tokens}"
            return 200, self.valid
        if headers["X-aws-ec2-metadata-token"] != self.valid:
            return 401, ""
        return self.statuses.get(path, (404, ""))


def test_one_token_serves_many_requests_and_is_renewed_when_it_ends():
    service, clock = Service(), FakeClock()
    metadata = Imds(service, clock)
    service.statuses["/latest/meta-data/instance-id"] = (200, "i-1")
    assert [metadata.get("instance-id") for _ in range(3)] == ["i-1"] * 3
    assert metadata.get("spot/instance-action") is None
    assert service.tokens == 1
    clock.advance(6 * 3600)
    assert metadata.get("instance-id") == "i-1"
    assert service.tokens == 2


def test_a_token_the_service_forgot_is_renewed_at_once():
    service = Service()
    metadata = Imds(service, FakeClock())
    service.statuses["/latest/meta-data/instance-id"] = (200, "i-1")
    metadata.get("instance-id")
    service.valid = "another"
    assert metadata.get("instance-id") == "i-1"


def test_errors_of_the_service_are_ours():
    service = Service()
    service.statuses["/latest/meta-data/x"] = (500, "")
    with pytest.raises(MetadataError, match="500"):
        Imds(service, FakeClock()).get("x")


# The log


def test_a_line_is_one_json_object_bounded_and_without_secrets():
    lines: list[str] = []
    log = Log(lines.append, FakeClock()).bind(run="r")
    log.info("called", slurm_key="hush", nodes=["a\nb"], text="x" * 100_000)
    record = json.loads(lines[0])
    assert (record["run"], record["slurm_key"], record["event"]) == ("r", "[redacted]", "called")
    assert lines[0].count("\n") == 1
    assert len(lines[0]) < 8100
