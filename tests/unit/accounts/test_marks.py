"""The marks in an association's comment, beside an admin's own words."""

import pytest

from toolkit.accounts.marks import LEFT, MADE, SET, Marks

COMMENTS = [
    "",
    "toolkit:left",
    "toolkit:left=50",
    "toolkit:made",
    "toolkit:left=50 toolkit:made toolkit:set=maxjobs=4,grptres=gres/gpu:a10g=8 paused until may",
]


@pytest.mark.parametrize("comment", COMMENTS)
def test_a_comment_is_written_as_it_was_read(comment):
    assert Marks.parse(comment).text == comment


def test_an_admins_words_stay_where_marks_come_and_go():
    marks = Marks.parse("paused  until may").marked(MADE).marked(LEFT, "50")
    assert marks.text == "toolkit:left=50 toolkit:made paused  until may"
    assert Marks.parse(marks.text).unmarked(LEFT).unmarked(MADE).text == "paused  until may"


@pytest.mark.parametrize(
    "comment", ["see toolkit:made", "nottoolkit:made", "toolkit:maden", "toolkit:other", "made"]
)
def test_only_words_of_ours_at_the_start_are_marks(comment):
    marks = Marks.parse(comment)
    assert marks.value(MADE) is None
    assert marks.text == comment


@pytest.mark.parametrize("comment", ["it's", 'a "b"', "a\\b", "Ünder", "Capital", "a`b"])
def test_words_that_sacctmgr_would_change_are_not_written_again(comment):
    """Refuse them: sacctmgr cuts quotes off and slurmdbd escapes none."""
    assert not Marks.parse(comment).writable
    assert not Marks.parse(f"toolkit:made {comment}").writable


def test_a_plain_comment_is_writable():
    assert Marks.parse("toolkit:set=maxwall=0-08:00:00 for | grant 12, ok?").writable
    assert Marks.parse("toolkit:set=maxwall=0-08:00:00").value(SET) == "maxwall=0-08:00:00"
