"""The line in slurm.conf: removed, the file is as before, to the byte."""

from __future__ import annotations

import pytest
from hypothesis import given, settings, strategies as st

from toolkit.join.errors import JoinConflict
from toolkit.join.include_line import added, comment, has_line, line_number, removed

NAME = "toolkit-burst.conf"
TEXTS = st.one_of(
    st.none(),
    st.text(),
    st.text("ab=\\\n #", max_size=20),
    st.just(f"{comment('other')}\nInclude toolkit-other.conf\n"),
)


@settings(deadline=None)
@given(TEXTS)
def test_removed_it_leaves_the_file_byte_for_byte(text):
    joined = added(text, "burst", NAME)
    assert has_line(joined, NAME)
    assert added(joined, "burst", NAME) == joined
    assert removed(joined, "burst", NAME) == text


@settings(deadline=None)
@given(st.text(min_size=1), st.text(min_size=1))
def test_what_the_admin_changed_meanwhile_stays(before, after):
    joined = added(before, "burst", NAME)
    assert removed(joined + after, "burst", NAME) == before + after


def test_a_line_by_hand_is_left_to_the_hand():
    text = f"ClusterName=x\ninclude  {NAME} # theirs\n"
    assert added(text, "burst", NAME) == text
    assert removed(text, "burst", NAME) == text
    assert line_number(text, NAME) == 2


def test_a_line_that_only_mentions_the_file_is_none():
    assert not has_line(f"# Include {NAME}\nIncludes {NAME}\nInclude {NAME}x\n", NAME)


def test_a_changed_line_is_not_taken_out():
    joined = added("a\n", "burst", NAME).replace(f"Include {NAME}", "Include theirs.conf")
    with pytest.raises(JoinConflict, match=r"is not `Include toolkit-burst\.conf`"):
        removed(joined, "burst", NAME)
