"""The spool: whole rows, and the numbers of their lines in the dump."""

import pytest

from toolkit.usage import database as databases, dump_columns, dump_file
from toolkit.usage.dump_text import DumpFormat, SacctText, blocks

FORM = DumpFormat("|", ("jobid", "submit", "start", "end", "account"))
TIMES = "1793491200|1793494800|1793502000"


def lines_of(*rows):
    return [row + "\n" for row in rows]


def read(tmp_path, *lines, form=FORM):
    """Return the rows that are read, and those that are no attempt."""
    part = dump_file.spool_rows(
        blocks(["".join(lines).encode()], form), form, tmp_path / "spool", 1000
    )
    with databases.opened(threads=1) as database:
        _, bad_rows = dump_columns.read_spool(database, part, form, 1, "UTC")
        rows = database.rows("SELECT line, job_id, account FROM read_attempts ORDER BY line")
    return rows, bad_rows


def test_rows_have_the_numbers_of_their_lines_behind_bad_ones(tmp_path):
    lines = lines_of(
        f"1|{TIMES}|a", "2|3", f"4|{TIMES}|b", f"|{TIMES}|c", "5|6|7|8|9|10", f"6|{TIMES}|d"
    )
    rows, bad_rows = read(tmp_path, *lines)
    assert rows == [(2, "1", "a"), (4, "4", "b"), (7, "6", "d")]
    assert bad_rows == [(5, "||1793491200", "it has no job id")]


@pytest.mark.parametrize("account", [" a", "a ", " a "])
def test_a_field_has_no_blank_around_it(tmp_path, account):
    last = read(tmp_path, *lines_of(f"1|{TIMES}|{account}"))
    form = DumpFormat("|", ("account", *FORM.fields[:-1]))
    first = read(tmp_path, *lines_of(f"{account}|1|{TIMES}"), form=form)
    assert last == first == ([(2, "1", "a")], [])


@pytest.mark.parametrize("account", ["a b", "a  b", "a b c"])
def test_a_blank_within_a_field_stays(tmp_path, account):
    part = dump_file.spool_rows(
        blocks([f"1|{TIMES}|{account}\n".encode()], FORM), FORM, tmp_path / "spool", 1
    )
    assert not part.has_outer_blanks
    assert read(tmp_path, *lines_of(f"1|{TIMES}|{account}")) == ([(2, "1", account)], [])


@pytest.mark.parametrize("delimiter", ["|", "\x1f", " ~ ", "\x1f0f1e\x1f"])
def test_what_ends_a_row_of_the_spool_is_a_blank(tmp_path, delimiter):
    form = DumpFormat(delimiter, FORM.fields)
    line = f"1|{TIMES}|a\x00b\rc".replace("|", delimiter) + "\r\n"
    assert read(tmp_path, line, form=form) == ([(2, "1", "a b c")], [])


def test_more_texts_than_an_enum_takes_are_read_as_they_are(tmp_path):
    count = 1500
    rows, _ = read(tmp_path, *lines_of(*(f"{key}|{TIMES}|a{key}" for key in range(1, count + 1))))
    assert {account for _, _, account in rows} == {f"a{key}" for key in range(1, count + 1)}


@pytest.mark.parametrize("line", range(1, 8))
def test_an_import_goes_on_behind_any_line(line):
    text = "".join(lines_of(f"1|{TIMES}|a", "2|3", f"4|{TIMES}|b", f"5|{TIMES}|c", f"6|{TIMES}|d"))
    source = SacctText("dump", "", FORM, [text.encode()], 2)
    whole = dump_file.rows_after(source, 0, 1)
    rest = dump_file.rows_after(source, line, 3)
    assert [item for item in _numbers(whole) if item > line] == list(_numbers(rest))


def _numbers(items):
    for item in items:
        yield from (item.line + at for at in range(getattr(item, "rows", 1)))
