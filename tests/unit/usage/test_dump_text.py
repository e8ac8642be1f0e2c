"""The text of a dump: its header, and rows that free text has broken."""

import pytest
from hypothesis import given, settings, strategies as st

from toolkit.usage.dump_text import (
    SPOOL_DELIMITER,
    BadLine,
    Block,
    DumpFormat,
    Row,
    blocks,
    dump_format,
    spool_text,
)
from toolkit.usage.errors import DumpUnreadable

FORM = DumpFormat("|", ("jobid", "jobname", "start"))
NAME_LAST = DumpFormat("|", ("jobid", "start", "jobname"))


def rows(text, form=FORM):
    return one_by_one(blocks([text.encode()], form), form)


def one_by_one(items, form):
    """Return rows and bad lines. The rows are as sacct prints them."""
    found = []
    for item in items:
        if isinstance(item, Block):
            texts = item.text.decode().split("\n")[:-1]
            assert len(texts) == item.rows
            found += [
                Row(number, shown(text, form)) for number, text in enumerate(texts, item.line)
            ]
        else:
            found.append(item)
    return found


def shown(text, form):
    return text.replace(SPOOL_DELIMITER, form.delimiter)


def spooled(text):
    return text.replace("|", SPOOL_DELIMITER).encode()


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
    chunk = b"1|a|10\n2|b|20\n3|c|30\n"
    assert list(blocks([chunk], FORM, most=2)) == [
        Block(2, 2, spooled("1|a|10\n2|b|20\n")),
        Block(4, 1, spooled("3|c|30\n")),
    ]


@settings(deadline=None)
@given(
    st.lists(st.text("z|é \r\x00\x1f", max_size=5).map(lambda text: text + "\n"), max_size=12),
    st.sampled_from(("|", "||", " | ", "\x1f", "\x1fa\x1f", "é")),
    st.booleans(),
    st.integers(1, 5),
    st.integers(1, 5),
)
def test_blocks_of_any_size_have_the_same_rows(lines, delimiter, name_last, size, most):
    form = DumpFormat(delimiter, (NAME_LAST if name_last else FORM).fields)
    texts = [line.replace("|", delimiter) for line in lines]
    chunks = ["".join(texts[start : start + size]).encode() for start in range(0, len(texts), size)]
    # A line that is no UTF-8 is in no block, so each line goes the longer way.
    broken = [chunk.replace(b"z", b"\xff") for chunk in chunks]
    found = one_by_one(blocks(chunks, form, most=most), form)
    one_way = [
        item._replace(text=item.text.replace("\ufffd", "z"))
        for item in one_by_one(blocks(broken, form), form)
    ]
    plain = [
        item._replace(text=shown(spool_text(item.text, form), form))
        for items in (found, one_way)
        for item in items
    ]
    assert plain[: len(found)] == plain[len(found) :]


@pytest.mark.parametrize("delimiter", ["|", "\x1f", "\x1f0f1e\x1f"])
def test_no_text_makes_a_field_of_the_spool(delimiter):
    form = DumpFormat(delimiter, FORM.fields)
    for name in ("a\x1fb", "a\x00b", "a\rb"):
        line = delimiter.join(("1", name, "10")) + "\n"
        items = list(blocks([line.encode()], form))
        if delimiter == "\x1f" and name == "a\x1fb":
            assert isinstance(items[0], BadLine)
            continue
        (item,) = items
        text = item.text.decode()[:-1] if isinstance(item, Block) else spool_text(item.text, form)
        assert text == SPOOL_DELIMITER.join(("1", "a b", "10"))


def test_a_line_of_a_megabyte_is_damage():
    (bad_line,) = rows(f"1|{'x' * 1_000_000}|10\n")
    assert "characters" in bad_line.reason
    assert len(bad_line.text) == 1000
