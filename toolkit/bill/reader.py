"""Reads Cost and Usage Report exports: CSV, CSV.gz and Parquet, by DuckDB.

DuckDB hands every value over as text, so no cost becomes a float here. Equal rows come as
one with their number, over all files.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import re
import tempfile
import zlib
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from toolkit.bill.columns import Column, find_columns, missing_columns
from toolkit.bill.errors import BillRefused, BillUnreadable
from toolkit.bill.lines import BillLine, parse_line

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping, Sequence
    from datetime import date
    from pathlib import Path

CURRENCY: Final = "USD"
_CHUNK: Final = 1 << 20
_ROWS_AT_ONCE: Final = 10_000
_COLUMNS: Final = tuple(Column)  # iterating an enum costs more than a row's cells
_LONGEST_ROW: Final = 16 << 20
_GLOB_SIGNS = re.compile(r"[*?\[\]{}]")
_COST_COLUMNS: Final = {
    "SavingsPlanCoveredUsage": Column.SAVINGS_EFFECTIVE,
    "DiscountedUsage": Column.RESERVATION_EFFECTIVE,
}
"""The column that such a line can't do without."""


class Format(Enum):
    """The format of a file, by its first bytes: names may lie."""

    CSV = b""
    GZIP = b"\x1f\x8b"
    PARQUET = b"PAR1"


@dataclass(frozen=True, slots=True)
class BillFile:
    """A file of an export."""

    path: Path
    sha256: str
    size: int  # bytes
    format: Format

    @property
    def name(self) -> str:
        """Return its name without folders."""
        return self.path.name


def open_files(paths: Sequence[Path]) -> tuple[BillFile, ...]:
    """Return the files, by content: one that is given twice counts once.

    Raises BillUnreadable if a file can't be read or is cut short.
    """
    files: dict[str, BillFile] = {}
    for path in paths:
        file = _opened(path)
        files.setdefault(file.sha256, file)
    return tuple(files.values())


def bill_hash(files: Sequence[BillFile]) -> str:
    """Return the hash of a bill, whatever the order of its files.

    A bill of one file has that file's SHA-256.
    """
    hashes = sorted(file.sha256 for file in files)
    return hashes[0] if len(hashes) == 1 else hashlib.sha256("".join(hashes).encode()).hexdigest()


def read_lines(files: Sequence[BillFile]) -> Generator[BillLine, None, None]:
    """Yield the lines of all files, in no order.

    A caller that may stop early closes the generator.
    Raises BillUnreadable, BillColumnsMissing, and BillRefused for another currency.
    """
    import duckdb

    with tempfile.TemporaryDirectory() as spill, _database(spill) as database:
        places = [find_columns(file.name, _header(database, file)) for file in files]
        try:
            yield from _lines(database, files, places)
        except duckdb.Error as error:
            raise _unreadable(files, error) from error


def read_months(files: Sequence[BillFile]) -> tuple[date, ...]:
    """Return the first days of the files' billing periods, in order.

    Raises as `read_lines` does.
    """
    return tuple(sorted({line.period for line in read_lines(files) if line.period is not None}))


def _database(spill: str) -> Any:
    """Return a database in memory, which loads nothing and prints nothing."""
    import duckdb

    settings: dict[str, Any] = {
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
        "temp_directory": spill,
    }
    database = duckdb.connect(config=settings)
    # DuckDB prints it to standard output, in the midst of `--json`.
    database.execute("SET enable_progress_bar = false")
    return database


def _lines(
    database: Any, files: Sequence[BillFile], places: Sequence[Mapping[Column, int]]
) -> Iterator[BillLine]:
    parameters: list[str] = []
    selects = []
    for number, (file, columns) in enumerate(zip(files, places, strict=True)):
        selects.append(_select(database, number, file, columns))
        parameters.append(_pattern(file.path))
    names = ", ".join(f'"{column}"' for column in _COLUMNS)
    query = (
        f"SELECT min(file), min(file_row), count(*), {names} FROM"  # noqa: S608  # names of ours
        f" ({' UNION ALL '.join(selects)}) GROUP BY {names}"
    )
    result = database.execute(query, parameters)
    while rows := result.fetchmany(_ROWS_AT_ONCE):
        for number, row, copies, *texts in rows:
            file = files[number]
            yield _line(file, places[number], row, copies, dict(zip(_COLUMNS, texts, strict=True)))


def _line(
    file: BillFile,
    columns: Mapping[Column, int],
    row: int,
    copies: int,
    texts: Mapping[Column, str | None],
) -> BillLine:
    line = parse_line(f"{file.name} row {row}", copies, texts)
    cost_column = _COST_COLUMNS.get(line.item_type)
    if cost_column is not None and cost_column not in columns:
        raise missing_columns(file.name, [cost_column])
    if line.currency not in {CURRENCY, ""}:
        raise BillRefused(
            f"{line.name} is in {line.currency[:20]!r}, and reports are in {CURRENCY}",
            next_step="choose an export in USD; exchange rates are not applied here",
        )
    return line


def _select(database: Any, number: int, file: BillFile, columns: Mapping[Column, int]) -> str:
    """Return the query of a file's columns, all as text."""
    if file.format is Format.PARQUET:
        described = _parquet_columns(database, file)
        texts = {column: _text_of(*described[place]) for column, place in columns.items()}
        source = "read_parquet(?)"
    else:
        count = len(_csv_header(file))
        texts = {column: f"c{place}" for column, place in columns.items()}
        names = ", ".join(f"'c{place}': 'VARCHAR'" for place in range(count))
        source = (
            "read_csv(?, auto_detect=false, header=true, delim=',', quote='\"', escape='\"',"
            f" nullstr='', max_line_size={_LONGEST_ROW}, columns={{{names}}},"
            f" compression='{'gzip' if file.format is Format.GZIP else 'none'}')"
        )
    parts = ", ".join(f'{texts.get(column, "NULL")}::VARCHAR AS "{column}"' for column in _COLUMNS)
    return f"SELECT {number} AS file, row_number() OVER () AS file_row, {parts} FROM {source}"  # noqa: S608


def _text_of(name: str, kind: str) -> str:
    """Return the expression that turns a Parquet column into text."""
    quoted = '"' + name.replace('"', '""') + '"'
    if kind.startswith(("MAP", "STRUCT")):
        return f"to_json({quoted})"
    if kind.startswith("TIMESTAMP"):
        # A timestamp with a zone would else be written in the computer's own.
        return f"make_timestamp(epoch_us({quoted}))"
    return quoted


def _header(database: Any, file: BillFile) -> list[str]:
    if file.format is Format.PARQUET:
        return [name for name, _ in _parquet_columns(database, file)]
    return _csv_header(file)


def _parquet_columns(database: Any, file: BillFile) -> list[tuple[str, str]]:
    import duckdb

    try:
        rows = database.execute(
            "DESCRIBE SELECT * FROM read_parquet(?)", [_pattern(file.path)]
        ).fetchall()
    except duckdb.Error as error:
        raise _unreadable([file], error) from error
    return [(row[0], row[1]) for row in rows]


def _csv_header(file: BillFile) -> list[str]:
    opener = gzip.open if file.format is Format.GZIP else open
    try:
        with opener(file.path, "rt", encoding="utf-8-sig", newline="") as stream:
            return next(csv.reader(stream), [])
    except (OSError, EOFError, ValueError, csv.Error) as error:
        raise _unreadable([file], error) from error


def _opened(path: Path) -> BillFile:
    digest, size, last = hashlib.sha256(), 0, b""
    try:
        with path.open("rb") as stream:
            first = stream.read(4)
            stream.seek(0)
            while chunk := stream.read(_CHUNK):
                digest.update(chunk)
                size += len(chunk)
                last = chunk[-1:]
        kind = next(item for item in reversed(Format) if first.startswith(item.value))
        if kind is Format.GZIP:
            last = _last_byte(path)
    except (OSError, EOFError, zlib.error) as error:
        raise BillUnreadable(f"{path} can't be read: {error}") from error
    if kind is not Format.PARQUET and last != b"\n":
        raise BillUnreadable(
            f"{path} does not end with a whole line", next_step="download the file again"
        )
    return BillFile(path.absolute(), digest.hexdigest(), size, kind)


def _last_byte(path: Path) -> bytes:
    last = b""
    with gzip.open(path, "rb") as stream:
        while chunk := stream.read(_CHUNK):
            last = chunk[-1:]
    return last


def _pattern(path: Path) -> str:
    """Return a path for DuckDB, in which `*` is no pattern."""
    return _GLOB_SIGNS.sub(lambda sign: f"[{sign[0]}]", str(path))


def _unreadable(files: Sequence[BillFile], error: Exception) -> BillUnreadable:
    names = ", ".join(file.name for file in files)
    first_line = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    return BillUnreadable(f"{names} can't be read: {first_line[:300]}")
