"""The rules that keep users from the instance metadata service."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from slurmplugins.errors import MetadataOpen
from slurmplugins.system import imds_access
from slurmplugins.system.imds_access import IPV4, IPV6, LAST_UID, UidRange
from tests.fakes.runner import FakeRunner

if TYPE_CHECKING:
    from pathlib import Path

SLURM = 64030  # the uid of Debian's and Ubuntu's package


@pytest.mark.parametrize(
    ("allowed", "refused"),
    [
        ({0}, [(1, LAST_UID)]),
        ({0, SLURM}, [(1, SLURM - 1), (SLURM + 1, LAST_UID)]),
        ({0, 1, 5}, [(2, 4), (6, LAST_UID)]),
        ({LAST_UID, 0}, [(1, LAST_UID - 1)]),
    ],
)
def test_every_uid_but_the_allowed_ones_is_refused(allowed, refused):
    assert imds_access.refused_ranges(allowed) == tuple(UidRange(*pair) for pair in refused)


def test_each_address_gets_a_rule_in_the_first_place_for_each_range():
    runner = FakeRunner(strict=True)
    runner.answer("/usr/sbin/ip")
    imds_access.restrict(runner, (IPV4, IPV6), {0, SLURM})
    assert [" ".join(argv[1:]) for argv in runner.commands] == [
        f"{option} rule add preference 0 to {address} uidrange {uids} prohibit"
        for option, address in (("-4", "169.254.169.254"), ("-6", "fd00:ec2::254"))
        for uids in (f"1-{SLURM - 1}", f"{SLURM + 1}-{LAST_UID}")
    ]


def test_a_rule_that_is_there_already_is_no_fault():
    runner = FakeRunner()
    runner.answer("/usr/sbin/ip", stderr="RTNETLINK answers: File exists\n", returncode=2)
    imds_access.restrict(runner, (IPV4,), {0})


def test_a_rule_that_can_not_be_added_is_an_error_in_the_kernels_words():
    runner = FakeRunner()
    runner.answer("/usr/sbin/ip", stderr="RTNETLINK answers: Operation not permitted", returncode=2)
    with pytest.raises(MetadataOpen, match=r"169\.254\.169\.254: .*Operation not permitted"):
        imds_access.restrict(runner, (IPV4,), {0})


@pytest.mark.parametrize("open_to", [1, SLURM - 1, SLURM + 1, LAST_UID])
@pytest.mark.parametrize("service", [IPV4, IPV6])
def test_one_user_that_is_not_refused_is_an_error_that_names_both(service, open_to):
    def refused(tried, uid):
        return (tried, uid) != (service, open_to)

    with pytest.raises(MetadataOpen, match=f"uid {open_to} is not refused at {service.address}"):
        imds_access.check((IPV4, IPV6), {0, SLURM}, refused)


def test_the_allowed_users_are_not_tried():
    tried = []
    imds_access.check((IPV4,), {0, 1, 3}, lambda _, uid: tried.append(uid) or True)
    assert tried == [2, 4, LAST_UID]


def test_a_kernel_without_ipv6_has_no_address_of_ipv6(tmp_path: Path):
    assert imds_access.services(tmp_path) == (IPV4,)
    (tmp_path / "net").mkdir()
    (tmp_path / "net/if_inet6").touch()
    assert imds_access.services(tmp_path) == (IPV4, IPV6)
