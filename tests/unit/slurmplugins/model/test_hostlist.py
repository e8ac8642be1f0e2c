"""Node names and hostlists."""

from __future__ import annotations

import pytest

from slurmplugins.errors import BadName
from slurmplugins.model.hostlist import expand, parse, pool_of


@pytest.mark.parametrize("text", ["gpu-001", "a-1", "big-gpu-2x-000123"])
def test_names_of_ours_are_taken(text: str):
    assert parse(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "gpu",
        "gpu-",
        "-1",
        "GPU-1",
        "gpu-1234567",
        "gpu-1;id",
        "gpu-1\n",
        "gpu-\u0661",
        "g$(x)-1",
    ],
)
def test_anything_else_is_refused(text: str):
    with pytest.raises(BadName):
        parse(text)


@pytest.mark.parametrize(
    ("hostlist", "expected"),
    [
        ("", []),
        ("gpu-7", ["gpu-7"]),
        ("gpu-[001-003]", ["gpu-001", "gpu-002", "gpu-003"]),
        ("gpu-[001,003-004],cpu-1", ["gpu-001", "gpu-003", "gpu-004", "cpu-1"]),
        ("gpu-[8-11]", ["gpu-8", "gpu-9", "gpu-10", "gpu-11"]),
    ],
)
def test_hostlists_expand_in_the_order_written(hostlist: str, expected: list[str]):
    assert list(expand(hostlist)) == expected


@pytest.mark.parametrize(
    "hostlist",
    [
        "gpu-[1-",
        "gpu-[]",
        "gpu-[3-1]",
        "gpu-[1-2",
        "a,b",
        "gpu-[1-2]x",
        "gpu-[[1]]",
        "gpu-1,,gpu-2",
    ],
)
def test_malformed_hostlists_are_refused(hostlist: str):
    with pytest.raises(BadName):
        expand(hostlist)


@pytest.mark.parametrize("odd", ["node01", "gpu-[3-1]", "$(id)", "a[1-2,7]", "", "gpu-[1-2"])
def test_what_is_no_name_of_ours_is_set_aside_where_that_is_asked(odd: str):
    found: list[str] = []
    assert expand(f"gpu-[1-2],{odd}", invalid_names=found) == ("gpu-1", "gpu-2")
    assert found == [odd]


@pytest.mark.parametrize(
    "hostlist",
    ["gpu-[000000-999999]", "gpu-[1-2,000000-999999]", "gpu-[1-3],gpu-4", "gpu-1,gpu-2,gpu-[3-4]"],
)
def test_expansion_is_bounded(hostlist: str):
    with pytest.raises(BadName, match="more than 3"):
        expand(hostlist, limit=3)


@pytest.mark.parametrize(
    ("hostlist", "expanded", "set_aside"),
    [
        ("gpu-[000000-999999]", (), ["gpu-[000000-999999]"]),
        ("gpu-[000000-999999],gpu-[1-2]", ("gpu-1", "gpu-2"), ["gpu-[000000-999999]"]),
        ("zzz-[1,10-99],gpu-[1-2]", ("zzz-1", "gpu-1", "gpu-2"), ["zzz-[10-99]"]),
        ("zzz-[1-3],node01,gpu-1,a-[2-1]", ("gpu-1",), ["node01", "a-[2-1]", "zzz-[1-3]"]),
        ("gpu-[1-3],gpu-4", ("gpu-4",), ["gpu-[1-3]"]),
    ],
)
def test_where_that_is_asked_the_largest_ranges_of_too_many_are_set_aside(
    hostlist: str, expanded: tuple[str, ...], set_aside: list[str]
):
    odd: list[str] = []
    assert expand(hostlist, limit=3, invalid_names=odd) == expanded
    assert sorted(odd) == sorted(set_aside)


@pytest.mark.parametrize(
    "hostlist", ["gpu-[1-3]", "gpu-[1,2-3]", "gpu-1,gpu-[2-3]", "gpu-[1-2],gpu-3"]
)
def test_as_many_as_are_allowed_are_expanded(hostlist: str):
    assert expand(hostlist, limit=3) == ("gpu-1", "gpu-2", "gpu-3")


def test_pool_is_the_part_before_the_number():
    assert pool_of(parse("big-gpu-007")) == "big-gpu"
