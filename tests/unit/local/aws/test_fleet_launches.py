"""The launches of a fleet on each market."""

import pytest
from moto.ec2.exceptions import EC2ClientError

from toolkit.local.aws.fleet_launches import capacities


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ({"TotalTargetCapacity": 3}, {"on-demand": 3}),
        ({"TotalTargetCapacity": 3, "DefaultTargetCapacityType": "spot"}, {"spot": 3}),
        ({"TotalTargetCapacity": 3, "SpotTargetCapacity": 1}, {"spot": 1, "on-demand": 2}),
        ({"TotalTargetCapacity": "2", "OnDemandTargetCapacity": "2"}, {"on-demand": 2}),
    ],
)
def test_the_rest_of_the_target_is_of_the_default_market(target, expected):
    assert capacities({"TargetCapacitySpecification": target}) == expected


@pytest.mark.parametrize(
    "params", [{}, {"TargetCapacitySpecification": {"TotalTargetCapacity": 0}}]
)
def test_a_fleet_of_nothing_is_refused(params):
    with pytest.raises(EC2ClientError, match="at least 1"):
        capacities(params)
