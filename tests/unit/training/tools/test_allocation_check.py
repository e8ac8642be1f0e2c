"""The faults that the smoke job reports, and the limits it allows."""

from dataclasses import replace

import pytest

from toolkit.training.tools.allocation_check import (
    Report,
    find_faults,
    product_problem,
    report_lines,
)

GOOD = Report(
    rank=0, node="gpu-001", gpu="A10G", gpu_problem="", granted_gpus=1, sum_ok=True,
    network=900.0, disk=400.0, unseen_files=(), clock=100.0,
)  # fmt: skip
OTHER = replace(GOOD, rank=1, node="gpu-002", clock=100.4)


def test_an_allocation_that_works_has_nothing_wrong():
    assert find_faults([GOOD, OTHER]) == ()
    assert report_lines([GOOD])[0] == "rank 0 on gpu-001: A10G, network 900 MiB/s, disk 400 MiB/s"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"gpu_problem": "A10G multiplies wrong"}, "gpu-002, rank 1: A10G multiplies wrong"),
        ({"sum_ok": False}, "gpu-002, rank 1: the sum over all ranks is wrong"),
        (
            {"unseen_files": ("rank-0",)},
            "gpu-002, rank 1: can't see the files of other ranks: rank-0",
        ),
        ({"disk": 3.0}, "gpu-002: writes only 3 MiB/s"),
        ({"clock": 90.0}, "gpu-002: its clock is 10.0 s behind"),
    ],
)
def test_what_is_wrong_is_logged_with_the_node_it_is_on(change, says):
    (wrong,) = find_faults([GOOD, replace(OTHER, **change)])
    assert wrong.startswith(says)


@pytest.mark.parametrize("error", [1e-6, float("inf"), float("nan")])
def test_a_gpu_whose_product_is_wrong_or_no_number_is_faulty(error):
    assert product_problem("A10G", error).startswith("A10G multiplies wrong")
    assert product_problem("A10G", 0.0) == ""


def test_a_slow_disk_is_accepted_where_the_user_says_so():
    assert find_faults([replace(GOOD, disk=3.0)], slow_disk=0) == ()
