"""The free part of the head's data volume, and the limit below which it is short."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from slurmplugins.model.data_volume import (
    ENOUGH_BYTES,
    LEAST_FREE,
    FreeShares,
    free_shares,
    shortage,
)


@dataclass(frozen=True)
class Counts:
    """A filesystem with 1000 blocks and 100 inodes, as statvfs counts them."""

    f_blocks: int = 1000
    f_bfree: int = 500
    f_bavail: int = 500
    f_files: int = 100
    f_favail: int = 50
    f_frsize: int = 4096


def test_space_that_root_alone_may_use_is_not_free():
    """Count as for slurmctld and MariaDB.

    Neither runs as root, for whom ext4 reserves 5 %.
    """
    assert free_shares(Counts(f_bfree=50, f_bavail=0)).space == 0
    assert free_shares(Counts(f_bfree=250, f_bavail=200)).space == pytest.approx(200 / 950)


def test_a_filesystem_without_a_number_of_inodes_has_enough_of_them():
    assert free_shares(Counts(f_files=0, f_favail=0)) == FreeShares(0.5, 1.0, 500 * 4096)
    assert free_shares(Counts(0, 0, 0, 0, 0)) == FreeShares(1.0, 1.0)


def test_a_large_volume_with_gibibytes_free_is_not_short_of_space():
    assert shortage(FreeShares(0.01, 1.0, ENOUGH_BYTES)) == ""
    assert shortage(FreeShares(0.01, 1.0, ENOUGH_BYTES - 1)) != ""
    assert "inodes" in shortage(FreeShares(0.01, 0.01, ENOUGH_BYTES))


@pytest.mark.parametrize("free", [FreeShares(LEAST_FREE, LEAST_FREE), FreeShares(1.0, 1.0)])
def test_a_volume_with_the_least_free_share_is_not_short(free: FreeShares):
    assert shortage(free) == ""


@pytest.mark.parametrize(
    ("free", "text"),
    [
        (FreeShares(0.0, 0.9), "/srv/head has 0.0 % of its space free, less than 5 %"),
        (FreeShares(0.04999, 0.9), "/srv/head has 4.9 % of its space free, less than 5 %"),
        (FreeShares(0.9, 0.012), "/srv/head has 1.2 % of its inodes free, less than 5 %"),
        (
            FreeShares(0.02, 0.01),
            "/srv/head has 2.0 % of its space and 1.0 % of its inodes free, less than 5 %",
        ),
    ],
)
def test_a_volume_with_less_is_short_and_says_of_what(free: FreeShares, text: str):
    assert shortage(free) == text
