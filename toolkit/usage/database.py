"""DuckDB, opened in memory for one piece of work. It is imported here alone."""

from __future__ import annotations

from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cached_property
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from toolkit.usage.errors import UsageStoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from concurrent.futures import Future
    from pathlib import Path
    from types import ModuleType

    from duckdb import DuckDBPyConnection

MEMORY = "1GB"
"""DuckDB's own limit. Beyond it, it writes to the store's folder for temporary files."""

_LARGEST_ENUM = 1000
"""Each file has all texts of an ENUM, so more of them are left as they are."""


@contextmanager
def opened(temporary: Path | None = None, *, threads: int | None = None) -> Iterator[Database]:
    """Give a database in memory, which spills into the folder `temporary`.

    DuckDB is loaded with the first statement: some reports need none. Raises UsageStoreError for
    any failure of DuckDB.
    """
    database = Database(temporary, threads)
    try:
        yield database
    except Exception as error:
        if database.is_failure(error):
            raise UsageStoreError(f"DuckDB: {error}") from error
        raise
    finally:
        database.close()


class Database:
    """A connection of DuckDB, with what this room needs of it."""

    def __init__(self, temporary: Path | None, threads: int | None) -> None:
        self._temporary, self._threads = temporary, threads
        self._opening: Future[DuckDBPyConnection] | None = None
        self.is_used = False

    @cached_property
    def _connection(self) -> DuckDBPyConnection:
        self.is_used = True
        return self._open() if self._opening is None else self._opening.result()

    def _open(self) -> DuckDBPyConnection:
        settings: dict[str, str | bool | int | float | list[str]] = {
            "memory_limit": MEMORY,
            # Nothing is fetched: the answers need no network.
            "autoinstall_known_extensions": "false",
            "temp_directory": str(self._temporary) if self._temporary else "",
            # Files never change, and several queries read them.
            "parquet_metadata_cache": "true",
        }
        if self._threads:
            settings["threads"] = self._threads
        connection: DuckDBPyConnection = _engine().connect(":memory:", config=settings)
        connection.execute("SET enable_progress_bar = false")
        return connection

    def open_meanwhile(self) -> None:
        """Open the connection in a thread, beside the caller's own work."""
        from concurrent.futures import ThreadPoolExecutor

        pool = ThreadPoolExecutor(max_workers=1)
        self._opening = pool.submit(self._open)
        pool.shutdown(wait=False)

    def is_failure(self, error: Exception) -> bool:
        """Return whether an error is DuckDB's own."""
        return self.is_used and isinstance(error, _engine().Error)

    def close(self) -> None:
        """Close the connection, if there is one."""
        is_opened = self._opening is not None and self._opening.exception() is None
        if is_opened or "_connection" in vars(self):
            self._connection.close()

    def run(self, sql: str, **parameters: object) -> None:
        """Run one statement; `$name` in it stands for a parameter."""
        self._connection.execute(sql, parameters or None)

    def rows(self, sql: str, **parameters: object) -> list[tuple[Any, ...]]:
        """Return the rows of one query."""
        rows: list[tuple[Any, ...]] = self._connection.execute(sql, parameters or None).fetchall()
        return rows

    def row(self, sql: str, **parameters: object) -> tuple[Any, ...]:
        """Return the one row of a query."""
        (row,) = self.rows(sql, **parameters)
        return row

    def value(self, sql: str, **parameters: object) -> Any:
        """Return the one value of a query."""
        return self.row(sql, **parameters)[0]

    def run_file(self, name: str, **variables: int) -> None:
        """Run the statements of a file of `toolkit/usage/sql`.

        The file reads a variable by `getvariable('name')`.
        """
        for variable, value in variables.items():
            self.run(f"SET VARIABLE {variable} = {int(value)}::BIGINT")
        self._connection.execute(sql_text(name))

    def table(
        self, name: str, columns: Sequence[tuple[str, str]], rows: Sequence[Sequence[object]]
    ) -> None:
        """Make a table of Python's values.

        `columns` are pairs of name and type."""
        fields = ", ".join(f"{column} {kind}" for column, kind in columns)
        self.run(f"CREATE OR REPLACE TEMP TABLE {name} ({fields})")
        with self._connection.appender(name) as appender:  # parameters take half as long again
            appender.append_rows(rows)

    def text_types(self, source: str, columns: Sequence[str]) -> dict[str, str]:
        """Return a type for each column of texts.

        It is an ENUM where few of them differ. DuckDB writes an ENUM in a fifth of a text's time.
        In Parquet both are text.
        """
        lists = ", ".join(
            f"list(DISTINCT {column}) FILTER ({column} IS NOT NULL)" for column in columns
        )
        types = {}
        for column, texts in zip(columns, self.row(f"SELECT {lists} FROM {source}"), strict=True):  # noqa: S608  # our own names
            types[column] = "VARCHAR"
            if texts and len(texts) <= _LARGEST_ENUM:
                types[column] = f"texts_of_{column}"
                values = ", ".join(map(quoted, sorted(texts)))
                self.run(f"CREATE OR REPLACE TYPE texts_of_{column} AS ENUM ({values})")
        return types

    def parsed(
        self,
        name: str,
        texts: str,
        columns: Sequence[tuple[str, str]],
        parse: Callable[..., Sequence[object]],
    ) -> None:
        """Make a table of what `parse` makes of each text.

        The query gives the texts, and each is parsed once. They keep their columns' names and
        types.
        """
        found = self.rows(f"SELECT DISTINCT * FROM ({texts})")  # noqa: S608  # our own text
        self.table(name, columns, [(*row, *parse(*row)) for row in found])


def _engine() -> ModuleType:
    """Return the engine alone, without DuckDB's layer of Python.

    To load that layer takes longer than most queries. What it gives is the engine's own.
    """
    try:
        import _duckdb
    except ImportError:  # the name is no promise of DuckDB's
        import duckdb

        return duckdb
    return _duckdb


def sql_text(name: str) -> str:
    """Return the text of a file of `toolkit/usage/sql`."""
    return files("toolkit.usage").joinpath("sql", name).read_text(encoding="utf-8")


def day(second: int) -> str:
    """Return the UTC day of an epoch second, as folders are named."""
    return f"{datetime.fromtimestamp(second, UTC):%Y-%m-%d}"


def quoted(text: str) -> str:
    """Return text as a literal of SQL."""
    return "'" + text.replace("'", "''") + "'"
