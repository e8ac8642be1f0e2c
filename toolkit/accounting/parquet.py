"""The charges of a report as a Parquet file, a row each."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from toolkit.accounting.errors import AccountingError
from toolkit.accounting.export import CHARGE_FIELDS, charge_rows

if TYPE_CHECKING:
    from toolkit.accounting.report import Report

_TYPES: Final = {
    "attempt": "BIGINT",
    "seconds": "DOUBLE",
    "usd": "DECIMAL(24,6)",
    "price_as_of": "TIMESTAMP",
}
"""The columns that are no text."""


def write(report: Report, path: Path) -> None:
    """Write the file; it has the columns of the CSV. Raises AccountingError.

    An unknown amount is NULL.
    """
    import duckdb

    rows = charge_rows(report)
    columns = ", ".join(f"'{name}': '{_TYPES.get(name, 'VARCHAR')}'" for name in CHARGE_FIELDS)
    try:
        with tempfile.TemporaryDirectory() as folder, duckdb.connect(config={"threads": 1}) as made:
            lines = Path(folder) / "charges.json"
            with lines.open("w", encoding="utf-8", errors="replace") as file:
                file.writelines(f"{json.dumps(_values(row))}\n" for row in rows)
            made.execute(
                f"""COPY (FROM read_json('{lines}', format='newline_delimited',
                columns={{{columns}}}, timestampformat='%Y-%m-%dT%H:%M:%SZ'))
                TO $path (FORMAT parquet)""",
                {"path": str(path)},
            )
    except (OSError, duckdb.Error) as error:
        raise AccountingError(f"can't write {path}: {error}") from error


def _values(row: dict[str, Any]) -> dict[str, Any]:
    return {name: row[name] for name in CHARGE_FIELDS}
