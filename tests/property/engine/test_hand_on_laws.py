"""Laws of the division of slurmctld's calls: no node is lost, and none is in both parts."""

from __future__ import annotations

from hypothesis import given, strategies as st

from slurmplugins.model.hostlist import compress, expand
from slurmplugins.model.site_nodes import divide
from toolkit.config.rack_names import rack_nodes

OURS = st.integers(1, 30).map(lambda number: f"gpu-{number:03}")
THEIRS = st.one_of(
    st.integers(31, 60).map(lambda number: f"gpu-{number:03}"),  # the same prefix as ours
    st.integers(1, 30).map(lambda number: f"rack-{number:02}"),
    st.from_regex(r"[A-Za-z][A-Za-z0-9._]{0,8}", fullmatch=True),
)


@given(st.lists(OURS, unique=True), st.lists(THEIRS, unique=True), st.data())
def test_no_node_is_lost_and_none_is_in_both_parts(ours, theirs, data):
    plain = [name for name in theirs if "-" in name]
    parts = [compress([*ours, *plain]), *(name for name in theirs if "-" not in name)]
    hostlist = ",".join(data.draw(st.permutations([part for part in parts if part])))
    own_part, sites_part = divide(hostlist, frozenset(ours))
    assert sorted(expand(own_part)) == sorted(ours)
    assert sorted(rack_nodes(sites_part) if sites_part else ()) == sorted(theirs)


@given(st.text("ga-0123,[]\\ x", max_size=30), st.frozensets(OURS))
def test_any_text_is_divided_without_an_error(text, ours):
    own_part, sites_part = divide(text, ours)
    assert set(expand(own_part)) <= ours
    assert not (set(expand(sites_part, invalid_names=[])) & ours)
