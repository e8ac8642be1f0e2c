"""Laws of names and hostlists, for any names and any text."""

from __future__ import annotations

from hypothesis import given, strategies as st

from slurmplugins.errors import BadName
from slurmplugins.model import hostlist

prefixes = st.sampled_from(["gpu", "cpu", "big-gpu", "a1-2"])
nodes = st.builds(
    lambda prefix, number, width: hostlist.NodeName(f"{prefix}-{number:0{width}d}"),
    prefixes,
    st.integers(0, 9999),
    st.integers(1, 6),
)


@given(st.lists(nodes, max_size=60))
def test_expanding_what_was_compressed_gives_the_names_in_order(listed: list[hostlist.NodeName]):
    assert hostlist.expand(hostlist.compress(listed)) == hostlist.order(listed)


@given(st.lists(nodes, max_size=60), st.integers(64, 256))
def test_hostlists_keep_the_order_and_fit(listed: list[hostlist.NodeName], characters: int):
    parts = hostlist.hostlists(listed, characters=characters)
    assert [name for part in parts for name in hostlist.expand(part)] == listed
    assert all(len(part) <= characters for part in parts)


@given(st.text(alphabet="gpu-[]0123456789,;$() \n", max_size=40))
def test_any_text_expands_to_names_or_is_refused(text: str):
    try:
        found = hostlist.expand(text)
    except BadName:
        return
    assert all(hostlist.parse(name) == name for name in found)
