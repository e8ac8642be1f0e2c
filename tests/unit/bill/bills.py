"""Makers of reports and bills for the tests of `toolkit.bill`."""

from __future__ import annotations

import csv
import gzip
import io
import tomllib
from contextlib import closing
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb

from tests.unit.accounting.samples import an_instance
from toolkit.accounting import export
from toolkit.accounting.allocation import Window
from toolkit.accounting.build import build
from toolkit.bill import estimates
from toolkit.bill.reader import open_files, read_lines
from toolkit.bill.reconcile import Options, Reconciliation, reconcile
from toolkit.prices import Catalogue, PriceBook, SpotHistory

CORPUS = Path(__file__).parents[2] / "corpus" / "cur"
SINCE, NOW = (int(datetime(2026, *day, tzinfo=UTC).timestamp()) for day in ((11, 1), (12, 5)))
NUMBERS = ("_cost", "_amount", "_fee", "_used_commitment", "_to_date", "_rate")
SPOT = SpotHistory.from_points([("g5.xlarge", "us-east-1a", SINCE - 9, Decimal("0.36"))])


def fixture(name: str) -> dict[str, Any]:
    return tomllib.loads((CORPUS / f"{name}.toml").read_text(encoding="utf-8"))


def report_of(*instances: dict[str, Any], since: int = SINCE, until: int = NOW):
    """Return the report of these instances, as a fixture describes them."""
    lives = [
        an_instance(
            item["id"],
            node=item.get("node", f"gpu-{number:03}"),
            instance_type=item.get("type", "g5.xlarge"),
            spot=item.get("spot", False),
            launched=int(item["from"].timestamp()),
            running=int(item["from"].timestamp()),
            ended=int(item["to"].timestamp()),
            end_cause=item.get("end_cause", "suspend"),
            tag_price=None,
        )
        for number, item in enumerate(instances)
    ]
    return build(
        cluster="demo",
        attempts=(),
        instances=lives,
        shapes={},
        book=PriceBook("us-east-1", Catalogue.bundled(), SPOT),
        window=Window(since, until),
        now=until,
    )


def report_json(*instances: dict[str, Any], **window: int) -> dict[str, Any]:
    return export.as_json(report_of(*instances, **window), ())


def reconciled(
    path: Path, instances: list[dict[str, Any]], *, entries=(), final: bool = False, now: int = NOW
) -> Reconciliation:
    files = open_files([path])
    known = estimates.parse(report_json(*instances))
    options = Options(now, Decimal("0.01"), final)
    with closing(read_lines(files)) as lines:
        return reconcile(files, lines, known, entries, options)


def changed(name: str, folder: Path, old: str, new: str, *, times: int = 1) -> Path:
    """Copy a fixture's CSV with a text replaced; return its path."""
    text = (CORPUS / f"{name}.csv").read_text(encoding="utf-8")
    assert text.count(old) >= times
    path = folder / f"{name}.csv"
    path.write_text(text.replace(old, new, times), encoding="utf-8")
    return path


def as_gzip(path: Path, folder: Path) -> Path:
    target = folder / f"{path.name}.gz"
    target.write_bytes(gzip.compress(path.read_bytes(), mtime=0))
    return target


def as_parquet(path: Path, folder: Path) -> Path:
    """Return the same rows in AWS's types: doubles, timestamps, maps."""
    rows = list(csv.DictReader(io.StringIO(path.read_text(encoding="utf-8"))))
    target = folder / f"{path.stem}.parquet"
    names = list(rows[0])
    with duckdb.connect() as database:
        columns = ", ".join(f'"{name}" VARCHAR' for name in names)
        database.execute(f"CREATE TABLE raw ({columns})")
        places = ", ".join("?" for _ in names)
        for row in rows:
            values = [row[name] for name in names]
            database.execute(f"INSERT INTO raw VALUES ({places})", values)  # noqa: S608
        typed = ", ".join(f'{_typed(name)} AS "{name}"' for name in names)
        database.execute(
            f"COPY (SELECT {typed} FROM raw) TO '{target}' (FORMAT parquet)"  # noqa: S608
        )
    return target


def _typed(name: str) -> str:
    value = f"nullif(\"{name}\", '')"
    if name.endswith(NUMBERS) or name.endswith("_for_billing_period"):
        return f"{value}::DOUBLE"
    if name.endswith("_date"):
        return f"replace({value}, 'Z', '')::TIMESTAMP"
    if name == "resource_tags":
        return f"from_json({value}, '\"MAP(VARCHAR, VARCHAR)\"')"
    return value
