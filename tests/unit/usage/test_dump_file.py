"""The spool: whole rows, and the numbers of their lines in the dump."""

import pytest

from toolkit.usage import database as databases, dump_columns, dump_file
from toolkit.usage.dump_text import DumpFormat, SacctText, blocks

FORM = DumpFormat("|", ("jobid", "submit", "start", "end", "account"))
TIMES = "1793491200|1793494800|1793502000"


def lines_of(*rows):
    return [row + "\n" for row in rows]


AMOUNTS = DumpFormat("|", (*FORM.fields, "eligible", "nnodes", "ncpus", "alloctres"))
GOOD = {
    "submit": "1793491200",
    "eligible": "1793491200",
    "start": "1793494800",
    "end": "1793502000",
    "nnodes": "2",
    "ncpus": "4",
    "alloctres": "cpu=4,mem=15000M,node=2",
}


def row(key, **changes):
    """Return a row of `AMOUNTS`."""
    values = GOOD | {"jobid": key, "account": "a"} | changes
    return "|".join(values[name] for name in AMOUNTS.fields)


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


@pytest.mark.parametrize("field", ["submit", "eligible", "start", "end"])
@pytest.mark.parametrize(
    "damage",
    [
        *("1e999", "1e9", "-5", "+5", "1.5", "NaN", "N/A", "unknown", "9" * 12, "9" * 400),
        *("2026-13-01T00:00:00", "2026-11-01T25:00:00", "1960-01-01T00:00:00", "2026-11-01Tx"),
    ],
)
def test_a_row_with_a_time_that_is_none_is_set_aside_and_hides_no_other(tmp_path, field, damage):
    lines = lines_of(row("1"), row("2", **{field: damage}), row("3"))
    rows, (bad,) = read(tmp_path, *lines, form=AMOUNTS)
    assert [key for _, key, _ in rows] == ["1", "3"]
    assert (bad[0], bad[2]) == (3, f"'{damage[:40]}' is no {field}")


@pytest.mark.parametrize("word", ["", "0", "Unknown", "None"])
def test_slurms_words_for_no_time_set_no_row_aside(tmp_path, word):
    lines = lines_of(row("1", eligible=word, start=word, end=word))
    assert read(tmp_path, *lines, form=AMOUNTS) == ([(2, "1", "a")], [])
    _, (bad,) = read(tmp_path, *lines_of(row("1", submit=word, start=word)), form=AMOUNTS)
    assert bad[2] == "it has no time"


@pytest.mark.parametrize(
    ("field", "damage"),
    [
        *(("nnodes", text) for text in ("x", "-2", "1e3", "1e999", "9" * 400)),
        *(("ncpus", text) for text in ("x", "-4", "4.5")),
        *(("alloctres", text) for text in ("cp", "cpu=-4", "cpu=4,mem=1e999M", "cpu=1K")),
    ],
)
def test_a_row_with_an_amount_that_is_none_is_set_aside(tmp_path, field, damage):
    lines = lines_of(row("1"), row("2", **{field: damage}))
    rows, (bad,) = read(tmp_path, *lines, form=AMOUNTS)
    assert [key for _, key, _ in rows] == ["1"]
    assert (bad[0], bad[2]) == (3, f"'{damage[:40]}' is no {field}")


@pytest.mark.parametrize("text", ["", "2K", "1.95K"])
def test_a_rounded_count_of_nodes_is_unknown_and_sets_no_row_aside(tmp_path, text):
    lines = lines_of(row("1", nnodes=text, ncpus=text))
    assert read(tmp_path, *lines, form=AMOUNTS) == ([(2, "1", "a")], [])
