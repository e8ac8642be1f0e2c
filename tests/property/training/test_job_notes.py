"""Laws of the job's comment: the user's words and the mark stay.

They hold for any line that is added. The mark is that of the last checkpoint.
"""

from hypothesis import given, strategies as st

from toolkit.training.slurm.job_comment import MAX_LENGTH, with_checkpoint_mark, with_line

users = st.text(st.characters(min_codepoint=33, max_codepoint=126, exclude_characters="|:"))
lines = st.lists(st.text(max_size=700).map("toolkit: held {}".format), max_size=6)


@given(users, lines, st.integers(0, 2**33))
def test_what_others_wrote_stays_and_the_newest_line_is_there(user, texts, at):
    comment = user
    for text in texts:
        comment = with_line(with_checkpoint_mark(comment, at), text)
        assert len(comment) <= MAX_LENGTH
        assert comment.startswith(user)
        assert comment.endswith(f"toolkit:checkpoint={at}")
        assert comment.count("toolkit:checkpoint=") == 1
        assert "toolkit: held" in comment


@given(st.text(max_size=3000))
def test_a_note_is_plain_and_bounded(text):
    comment = with_line("", text)
    assert len(comment) <= MAX_LENGTH
    assert comment.isascii()
    assert not set(comment) & set("\"'`|\n")
