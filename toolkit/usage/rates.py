"""Prices of node-hours for a report on somebody's cluster, by node type or partition.

sacct names nodes and partitions, and no types. A prices file says which nodes are of which type,
by the pattern of their names.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from toolkit.prices import Catalogue, parse_usd
from toolkit.usage.errors import RateInvalid

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from decimal import Decimal
    from pathlib import Path

PICO = 10**12
"""Prices are whole millionths of a micro-dollar: twelve places, as many as a price may have."""


@dataclass(frozen=True, slots=True)
class NodeType:
    """A type of nodes: their names, price and size."""

    name: str
    patterns: tuple[str, ...] = ()  # of node names, e.g. `gpu-*`
    usd_per_hour: Decimal | None = None
    cpus: int = 0  # 0: not known
    memory_mib: int = 0
    gpus: int = 0


@dataclass(frozen=True, slots=True)
class Rates:
    """The prices of a report."""

    node_types: tuple[NodeType, ...] = ()
    partitions: Mapping[str, Decimal] | None = None

    @property
    def given(self) -> bool:
        """Return whether there is any price."""
        return bool(self.partitions) or any(item.usd_per_hour for item in self.node_types)

    def type_of(self, node: str) -> NodeType | None:
        """Return the type of a node, the first whose pattern fits."""
        for item in self.node_types:
            if any(fnmatchcase(node, pattern) for pattern in item.patterns):
                return item
        return None


def read_rates(options: Sequence[str], path: Path | None) -> Rates:
    """Return the prices of `--rate NAME=USD` options and of a prices file.

    A rate names a node type of the file, else a partition. Raises RateInvalid.
    """
    rates = _file(path) if path else Rates()
    types = {item.name: item for item in rates.node_types}
    partitions = dict(rates.partitions or {})
    for option in options:
        name, equals, text = option.rpartition("=")
        usd = parse_usd(text.strip())
        if not equals or not name or usd is None:
            raise RateInvalid(f"--rate {option!r}: write NAME=USD, such as gpu=1.006")
        if name in types:
            item = types[name]
            types[name] = NodeType(
                item.name, item.patterns, usd, item.cpus, item.memory_mib, item.gpus
            )
        else:
            partitions[name] = usd
    return Rates(tuple(types.values()), partitions)


def _file(path: Path) -> Rates:
    """Read a prices file; its form is in docs/usage.md."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        data = YAML(typ="safe").load(path.read_text(encoding="utf-8")) or {}
    except (OSError, UnicodeDecodeError, YAMLError) as error:
        raise RateInvalid(f"can't read {path}: {error}") from error
    if not isinstance(data, dict) or set(data) - {"node_types", "partitions"}:
        raise RateInvalid(f"{path}: its keys are node_types and partitions")
    shapes = Catalogue.bundled().shapes
    types = []
    for name, entry in _section(data, "node_types", path).items():
        shape = shapes.get(str(name))
        sizes = (shape.cpus, shape.memory_mib, shape.gpus) if shape else (0, 0, 0)
        types.append(_node_type(str(name), entry, sizes, path))
    partitions = {
        str(name): _usd(usd, f"{path}: partitions: {name}")
        for name, usd in _section(data, "partitions", path).items()
    }
    return Rates(tuple(types), partitions)


def _section(data: dict[str, Any], key: str, path: Path) -> dict[str, Any]:
    section = data.get(key) or {}
    if not isinstance(section, dict):
        raise RateInvalid(f"{path}: {key} has a line for each name")
    return section


def _node_type(name: str, entry: object, sizes: tuple[int, int, int], path: Path) -> NodeType:
    where = f"{path}: node_types: {name}"
    known = {"nodes", "usd_per_hour", "cpus", "memory_mib", "gpus"}
    if not isinstance(entry, dict) or set(entry) - known:
        raise RateInvalid(f"{where}: its keys are {', '.join(sorted(known))}")
    nodes = entry.get("nodes", ())
    patterns = (nodes,) if isinstance(nodes, str) else tuple(map(str, nodes))
    usd = _usd(entry["usd_per_hour"], where) if "usd_per_hour" in entry else None
    cpus, memory_mib, gpus = (
        _size(entry.get(key, size), f"{where}: {key}")
        for key, size in zip(("cpus", "memory_mib", "gpus"), sizes, strict=True)
    )
    return NodeType(name, patterns, usd, cpus, memory_mib, gpus)


def _size(value: object, where: str) -> int:
    if not isinstance(value, int) or not 0 <= value <= 10**8:
        raise RateInvalid(f"{where}: {value!r} is no whole number")
    return value


def _usd(value: object, where: str) -> Decimal:
    usd = parse_usd(str(value))
    if usd is None:
        raise RateInvalid(f"{where}: {value!r} is no price in US dollars an hour")
    return usd
