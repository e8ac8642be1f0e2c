"""The engine's own suite for the cloud port, against the local cloud.

`GAPS` lists the missing behaviour of the local cloud.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from slurmplugins.cloud import describe_instances
from slurmplugins.cloud.ec2 import Ec2
from tests.contract.engine import test_cloud_port as suite
from tests.contract.local.localcloud import started
from toolkit.local.client import Client
from toolkit.local.faults import Pattern

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

GAPS: dict[str, suite.Gap] = {}

globals().update({name: value for name, value in vars(suite).items() if name.startswith("test_")})
offered = suite.offered


@pytest.fixture
def offer(tmp_path) -> Iterator[Callable[[str], suite.Offered]]:
    # A new cloud for each test: the suite's first launch id is always a1, and EC2 refuses a client
    # token that is repeated with another request.
    with started(tmp_path) as local:
        client = local.client("ec2")
        describe_instances.attach(client)
        subnet = client.describe_subnets()["Subnets"][0]
        suite.launch_template(client, local.image)

        def post_control(command: str, **parameters: object) -> None:
            Client(local.cloud.options.port).post(command, parameters)

        def offer_one(cluster: str) -> suite.Offered:
            return suite.Offered(
                cluster,
                Ec2(cluster, lambda: client),
                Ec2("other", lambda: client),
                subnet["SubnetId"],
                subnet["AvailabilityZone"],
                settle=local.settle,
                limit=lambda offering, free: local.cloud.faults.limit(
                    Pattern(offering.type, offering.zone, offering.lifecycle.value), free
                ),
                gaps=GAPS,
                impair=lambda id_: post_control("impair", target=id_),
                schedule=lambda id_, code, wait: post_control(
                    "schedule", target=id_, event=code, seconds=wait
                ),
                give_notice=lambda id_: post_control("interrupt", target=id_),
            )

        yield offer_one
