"""The AWS of all contestants: a local cloud with EC2's request rates.

EC2 is the local cloud's layer over moto, in this process. DynamoDB, Route 53 and S3 are answered
here; only the peer needs the first two. Every AWS call has the same extra latency, and is counted.
"""

from __future__ import annotations

import contextlib
import io
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from unittest import mock

from toolkit.local.aws import request_rates
from toolkit.local.cloud import Cloud
from toolkit.local.endpoint import Call, call_of
from toolkit.local.image_registry import MEMORY_BASE, MemoryImageRegistry
from toolkit.local.machines.none_driver import NoneDriver
from toolkit.local.options import Options
from toolkit.local.sockets import Listeners, bind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

AWS_LATENCY = 0.03
"""Seconds added to every AWS call."""

RAISED = {"RunInstances": (1000.0, 200.0)}
"""Instances a second. At the default account's 2/s, 4,000 nodes take 25 minutes for any contestant.

AWS raises the rate on request. Calls stay at the published 5 at once and 2/s.
"""

PUBLISHED = request_rates.RESOURCES["RunInstances"]
"""The rate of an account until AWS raises it."""

ROUTE53 = (50.0, 10.0)
"""The published rate of calls: bucket, and refill a second, of an account."""

LAUNCHES = ("RunInstances", "CreateFleet")


@dataclass(frozen=True)
class Served:
    """A call that was answered."""

    service: str
    action: str
    began: float
    ended: float
    status: int
    market: str
    started: int


@dataclass
class SimulatedAws:
    """The cloud, its endpoint, and the calls that it answered."""

    endpoint: str
    cloud: Cloud
    served: list[Served] = field(default_factory=list)

    def counts(self, service: str) -> Counter[str]:
        return Counter(one.action for one in self.served if one.service == service)

    def refused(self, service: str) -> int:
        return sum(one.service == service and one.status in {400, 503} for one in self.served)

    def alive(self) -> int:
        return sum(1 for _ in self.cloud.tables.live_instances())


class Gate:
    """A front of the local cloud that counts and delays calls.

    It answers the calls for which the local cloud has no service.
    """

    def __init__(self, cloud: Cloud) -> None:
        self._cloud = cloud
        self.aws: SimulatedAws | None = None
        self.canned: dict[str, list[bytes]] = {}
        self._lock = threading.Lock()
        self._dns = request_rates.TokenBucket(*ROUTE53, ROUTE53[0], time.monotonic())

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        began = time.monotonic()
        length = int(environ.get("CONTENT_LENGTH") or 0)
        body = environ["wsgi.input"].read(length) if length else b""
        environ["wsgi.input"] = io.BytesIO(body)
        call = call_of(environ, body)
        time.sleep(AWS_LATENCY)
        before = len(self._cloud.tables.instances)
        seen: list[int] = []

        def start(status: str, headers: list[tuple[str, str]], info: Any = None) -> Any:
            seen.append(int(status.split(" ", 1)[0]))
            return start_response(status, headers, info)

        answer = self._answer(call, environ, start)
        market = call.params.get("InstanceMarketOptions.MarketType", "on-demand")
        if self.aws is not None:
            action = call.action or environ["REQUEST_METHOD"]
            fresh = len(self._cloud.tables.instances) - before
            self.aws.served.append(
                Served(call.service, action, began, time.monotonic(), seen[0], market, fresh)
            )
        return answer

    def _answer(self, call: Call, environ: dict[str, Any], start: Any) -> Iterable[bytes]:
        if call.service == "dynamodb":
            return _reply(start, 200, "application/x-amz-json-1.0", b'{"UnprocessedItems":{}}')
        if call.service == "route53":
            return self._route53(start)
        if call.service == "s3":
            missing = environ["REQUEST_METHOD"] == "GET"
            return _reply(start, 404 if missing else 200, "text/xml", _NO_KEY if missing else b"")
        if call.action in self.canned:
            pages = self.canned[call.action]
            return _reply(start, 200, "text/xml", pages[int(call.params.get("NextToken") or 0)])
        return self._cloud.router(environ, start)

    def _route53(self, start: Any) -> Iterable[bytes]:
        with self._lock:
            allowed = self._dns.spend(1, time.monotonic())
        return _reply(start, 200 if allowed else 400, "text/xml", _CHANGED if allowed else _SLOW)


_NO_KEY = b"<Error><Code>NoSuchKey</Code><Message>none</Message></Error>"
_CHANGED = (
    b'<ChangeResourceRecordSetsResponse xmlns="https://route53.amazonaws.com/doc/2013-04-01/">'
    b"<ChangeInfo><Id>/change/C1</Id><Status>PENDING</Status>"
    b"<SubmittedAt>2026-11-21T00:00:00Z</SubmittedAt></ChangeInfo>"
    b"</ChangeResourceRecordSetsResponse>"
)
_SLOW = (
    b'<ErrorResponse xmlns="https://route53.amazonaws.com/doc/2013-04-01/"><Error>'
    b"<Type>Sender</Type><Code>Throttling</Code><Message>Rate exceeded</Message></Error>"
    b"<RequestId>r</RequestId></ErrorResponse>"
)


def _reply(start: Any, status: int, kind: str, body: bytes) -> Iterable[bytes]:
    words = {200: "OK", 400: "Bad Request", 404: "Not Found"}
    headers = [("Content-Type", kind), ("Content-Length", str(len(body)))]
    start(f"{status} {words[status]}", headers)
    return [body]


@contextlib.contextmanager
def opened(
    state: Path, *, throttled: bool = True, raised: bool = True
) -> Iterator[tuple[SimulatedAws, Gate]]:
    """Open a new cloud with full buckets and no instances.

    With `raised`, AWS has raised its rate.
    """
    bound = bind("127.0.0.1", 0)
    port = bound.getsockname()[1]
    options = Options(state=state, port=port, driver="none", throttle=throttled)
    listeners = Listeners()
    workers = ThreadPoolExecutor(1)
    rates = mock.patch.dict(request_rates.RESOURCES, RunInstances=rate(raised=raised))
    with rates, Cloud(options, NoneDriver(), MemoryImageRegistry(), workers=workers) as cloud:
        gate = Gate(cloud)
        gate.aws = SimulatedAws(f"http://127.0.0.1:{port}", cloud)
        listeners.add("host", bound, gate)
        thread = threading.Thread(target=listeners.run, daemon=True)
        thread.start()
        try:
            yield gate.aws, gate
        finally:
            listeners.stop()
            thread.join()


def rate(*, raised: bool) -> tuple[float, float]:
    """Return the rate of RunInstances: instances at once, and a second."""
    return RAISED["RunInstances"] if raised else PUBLISHED


def prepare(aws: SimulatedAws, client: Any, *, fleet: bool = False) -> str:
    """Make a large subnet and both contestants' launch templates.

    A fleet's call names types and subnets itself, so the peer's template then has neither.
    """
    vpc = client.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
    made = client.create_subnet(VpcId=vpc, CidrBlock="10.0.0.0/17", AvailabilityZone="us-east-1a")
    subnet: str = made["Subnet"]["SubnetId"]
    image = {"ImageId": MEMORY_BASE}
    placed = {"NetworkInterfaces": [{"DeviceIndex": 0, "SubnetId": subnet}]}
    peers = image if fleet else {**image, **placed, "InstanceType": "g5.xlarge"}
    for name, data in {"demo-gpu": image, "demo-queue1-cr1": peers}.items():
        client.create_launch_template(LaunchTemplateName=name, LaunchTemplateData=data)
    aws.served.clear()
    return subnet
