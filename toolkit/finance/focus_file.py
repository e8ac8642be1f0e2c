"""Writes rows of FOCUS as CSV or Parquet, as the name of the file says.

A file is there whole or not at all.
"""

from __future__ import annotations

import csv
from decimal import Decimal
from typing import TYPE_CHECKING

from toolkit.accounting.export import safe_cell
from toolkit.finance.errors import FinanceError, FocusFileInvalid
from toolkit.finance.focus_columns import COLUMNS, Kind
from toolkit.usage.database import opened, quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from toolkit.finance.focus_columns import Column, Value
    from toolkit.finance.focus_rows import Row

CSV, PARQUET = ".csv", ".parquet"


def check_name(path: Path) -> None:
    """Raise FocusFileInvalid for a name that tells no format."""
    if path.suffix not in {CSV, PARQUET}:
        raise FocusFileInvalid(
            f"{path.name!r} tells no format", next_step="end its name with .csv or .parquet"
        )


def write(path: Path, rows: Iterable[Row]) -> None:
    """Write the file, in the place of an older one. Raises FinanceError."""
    check_name(path)
    unfinished = path.with_name(f"{path.name}.new")
    try:
        if path.suffix == CSV:
            write_csv(unfinished, rows, safe_cell)
        else:
            _write_parquet(unfinished, rows)
        unfinished.replace(path)
    except OSError as error:
        raise FinanceError(f"can't write {path}: {error.strerror}") from error
    finally:
        unfinished.unlink(missing_ok=True)


def write_csv(path: Path, rows: Iterable[Row], text: Callable[[str], str]) -> None:
    """Write rows as CSV, no value as an empty cell.

    `text` makes a cell of outside text.
    """
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(column.name for column in COLUMNS)
        for row in rows:
            writer.writerow(_cell(column, row[column.name], text) for column in COLUMNS)


def _cell(column: Column, value: Value, text: Callable[[str], str]) -> str:
    if value is None:
        return ""
    if isinstance(value, Decimal):
        # A whole number would make a reader take the column for integers.
        plain = f"{value:f}"
        return plain if "." in plain else f"{plain}.0"
    return value if column.kind is Kind.MOMENT else text(value)


def _write_parquet(path: Path, rows: Iterable[Row]) -> None:
    """Write rows as Parquet, by a CSV file that DuckDB reads."""
    source = path.with_name(f"{path.name}.rows")
    columns = ", ".join(f'"{column.name}"::{column.kind} AS "{column.name}"' for column in COLUMNS)
    try:
        write_csv(source, rows, str)
        with opened(path.parent) as database:
            database.run(
                f"""COPY (
                    SELECT {columns} FROM read_csv({quoted(str(source))}, header = true,
                        all_varchar = true, delim = ',', quote = '"', escape = '"', nullstr = '')
                ) TO {quoted(str(path))} (FORMAT parquet, COMPRESSION zstd)"""  # noqa: S608  # our own names
            )
    finally:
        source.unlink(missing_ok=True)
