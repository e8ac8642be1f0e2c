"""The text of a dump: its header, and rows that free text has broken."""

import pytest
from hypothesis import given, strategies as st

from toolkit.usage.dump_text import BadLine, Block, DumpFormat, Row, blocks, dump_format, whole_rows
from toolkit.usage.errors import DumpUnreadable

FORM = DumpFormat("|", ("jobid", "jobname", "start"))
NAME_LAST = DumpFormat("|", ("jobid", "start", "jobname"))


def rows(text, form=FORM):
    return list(whole_rows(text.splitlines(keepends=True), form))


@pytest.mark.parametrize("delimiter", ["|", "\x1f", ";", " ~ ", "\x1f0f1e\x1f"])
def test_the_header_tells_the_delimiter_and_the_fields(delimiter):
    header = delimiter.join(["JobID", "Submit", "Start", "End"])
    told = delimiter if any(char.isalnum() for char in delimiter) else None
    assert dump_format(header + "\n", told) == DumpFormat(
        delimiter, ("jobid", "submit", "start", "end")
    )


def test_a_header_of_sacct_p_ends_with_a_delimiter():
    assert dump_format("JobID|Submit|Start|End|\n").delimiters == 4


@pytest.mark.parametrize("header", ["", "\n", "4711|a|b\n", "JobID\n", "a b?|c|d\n"])
def test_a_first_line_that_names_no_fields_is_refused(header):
    with pytest.raises(DumpUnreadable, match="names no fields"):
        dump_format(header)


def test_a_missing_field_is_named_with_a_call_that_has_it():
    with pytest.raises(DumpUnreadable, match="no field submit, end") as error:
        dump_format("JobID|Start\n")
    assert "sacct" in error.value.next_step


def test_whole_rows_have_the_numbers_of_their_lines():
    assert rows("1|a|10\n2|b|20\n") == [Row(2, "1|a|10"), Row(3, "2|b|20")]


def test_a_row_that_a_name_has_broken_is_joined():
    assert rows("1|a\nb\nc|10\n2|b|20\n") == [Row(2, "1|a b c|10"), Row(5, "2|b|20")]


def test_a_row_that_ends_early_is_set_aside_alone():
    assert rows("1|a\n2|b|20\n3|c|30\n") == [
        BadLine(2, "1|a", "fewer than 3 fields"),
        Row(3, "2|b|20"),
        Row(4, "3|c|30"),
    ]


def test_a_file_that_ends_within_a_row_has_a_bad_line():
    assert rows("1|a|10\n2|b") == [Row(2, "1|a|10"), BadLine(3, "2|b", "fewer than 3 fields")]


def test_a_delimiter_within_a_name_is_set_aside_and_at_the_end_belongs_to_the_name():
    assert rows("1|a|b|10\n") == [BadLine(2, "1|a|b|10", "4 fields, not 3")]
    assert rows("1|10|a|b\n", NAME_LAST) == [Row(2, "1|10|a b")]


def test_further_lines_of_a_name_at_the_end_make_no_row():
    assert rows("1|10|a\nb\n2|20|c\n", NAME_LAST) == [Row(2, "1|10|a"), Row(4, "2|20|c")]
    assert rows("1|a|10\nb\n") == [Row(2, "1|a|10"), BadLine(3, "b", "no delimiter")]


def test_lines_that_are_rows_come_in_blocks():
    lines = ["1|a|10\n", "2|b|20\n", "3|c|30\n"]
    assert list(blocks(lines, FORM, most=2)) == [Block(2, lines[:2]), Block(4, lines[2:])]


@given(
    st.lists(st.text("a|", max_size=4).map(lambda text: text + "\n"), max_size=12),
    st.sampled_from((FORM, NAME_LAST)),
    st.integers(1, 5),
)
def test_blocks_of_any_size_have_the_same_rows(lines, form, most):
    found = []
    for item in blocks(lines, form, most=most):
        if isinstance(item, Block):
            texts = enumerate(item.lines, start=item.line)
            found += [Row(number, text.rstrip("\n")) for number, text in texts]
        else:
            found.append(item)
    one_by_one = [
        Row(item.line, item.lines[0].rstrip("\n")) if isinstance(item, Block) else item
        for item in blocks(lines, form, most=1)
    ]
    assert found == one_by_one


def test_a_line_of_a_megabyte_is_damage():
    (bad_line,) = rows(f"1|{'x' * 1_000_000}|10\n")
    assert "characters" in bad_line.reason
    assert len(bad_line.text) == 1000
