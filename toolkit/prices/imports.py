"""The catalogues that were imported: files in the folder `prices/` beside cluster.yaml.

A file is named by its region and day, so an import never writes over an older one. A
report takes for each second the catalogue that was the newest then. So a new import
changes no past month.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from toolkit.prices.catalogue import Catalogue
from toolkit.prices.errors import PricesError

if TYPE_CHECKING:
    from pathlib import Path

FOLDER: Final = "prices"


def folder(config_path: Path) -> Path:
    """Return the folder of the catalogues that belong to a cluster.yaml."""
    return config_path.absolute().parent / FOLDER


def file_name(catalogue: Catalogue) -> str:
    """Return the name of a catalogue's file."""
    return f"{catalogue.region}-{_day(catalogue)}.json"


def read(place: Path) -> tuple[Catalogue, ...]:
    """Return all catalogues of a folder, which may be missing.

    Raises PricesError for a file that is no catalogue.
    """
    catalogues = []
    for path in sorted(place.glob("*.json")):
        try:
            catalogues.append(Catalogue.parse(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, ArithmeticError, LookupError, TypeError, AttributeError):
            raise PricesError(
                f"{path} is no catalogue of prices",
                next_step="delete it, and import the price list again",
            ) from None
    return tuple(catalogues)


def write(catalogue: Catalogue, place: Path, source: str) -> Path:
    """Write a catalogue, and return its file. May be repeated."""
    path = place / file_name(catalogue)
    try:
        place.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(".new")
        unfinished.write_text(_text(catalogue, source), encoding="utf-8")
        unfinished.replace(path)
    except OSError as error:
        raise PricesError(f"can't write {path}: {error.strerror}") from error
    return path


def _text(catalogue: Catalogue, source: str) -> str:
    types = {}
    for name in sorted(catalogue.prices):
        row: dict[str, object] = {"usd": f"{catalogue.prices[name]:f}"}
        shape = catalogue.shapes.get(name)
        if shape is not None:
            row |= {"cpus": shape.cpus, "memory_mib": shape.memory_mib, "gpus": shape.gpus}
        types[name] = row
    data = {"as_of": _day(catalogue), "region": catalogue.region, "source": source, "types": types}
    return json.dumps(data, indent=1) + "\n"


def _day(catalogue: Catalogue) -> str:
    return datetime.fromtimestamp(catalogue.as_of, UTC).strftime("%Y-%m-%d")
