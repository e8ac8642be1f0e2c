"""Reads any slurm.conf: settings, nodes and partitions with their lines."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from slurmplugins.errors import BadName
from slurmplugins.model.hostlist import expand

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_PAIR: Final = re.compile(r"([A-Za-z][A-Za-z0-9_]*)\+?=(\S*)")
_SETTING: Final = re.compile(r"\s*([A-Za-z][A-Za-z0-9_]*)\s*=\s*(.*?)\s*$")
_TIMES: Final = {"infinite": -1, "-1": -1, "unlimited": -1}


@dataclass(frozen=True, slots=True)
class Setting:
    """A value in its own spelling."""

    name: str
    value: str
    line: int = 0  # 0: not in the file

    @property
    def words(self) -> tuple[str, ...]:
        """Return the members of a list."""
        return tuple(word.strip() for word in self.value.split(",") if word.strip())

    @property
    def number(self) -> int | None:
        """Return a whole number, -1 for infinite, None for anything else."""
        text = self.value.lower()
        if text in _TIMES:
            return _TIMES[text]
        return int(text) if text.isascii() and text.isdecimal() else None


@dataclass(frozen=True, slots=True)
class Line:
    """A NodeName or PartitionName line."""

    name: str
    values: Mapping[str, str]  # keys in lower case
    line: int

    def get(self, key: str) -> str:
        return self.values.get(key.lower(), "")


@dataclass(frozen=True, slots=True)
class SlurmConf:
    """A slurm.conf. The last of two equal settings counts, as in Slurm."""

    settings: Mapping[str, Setting] = field(default_factory=dict)  # by name in lower case
    nodes: tuple[Line, ...] = ()
    partitions: tuple[Line, ...] = ()
    includes: tuple[Line, ...] = ()

    def get(self, name: str) -> Setting | None:
        return self.settings.get(name.lower())

    def number(self, name: str, default: int) -> int:
        """Return a setting's number, `default` if unset or no number."""
        found = self.get(name)
        value = None if found is None else found.number
        return default if value is None else value

    def words(self, name: str) -> tuple[str, ...]:
        found = self.get(name)
        return () if found is None else found.words

    def parameter(self, name: str, word: str) -> str | None:
        """Return the value of a word in a list.

        `10` for `requeue_delay=10`, empty for a bare word, None without the word.
        """
        for each in self.words(name):
            key, _, value = each.partition("=")
            if key.lower() == word.lower():
                return value
        return None

    @property
    def cloud_nodes(self) -> tuple[Line, ...]:
        return tuple(node for node in self.nodes if node.get("state").upper() == "CLOUD")

    def expanded(self, hostlist: str) -> tuple[str, ...]:
        """Return the names in a hostlist.

        A hostlist in another syntax is returned as it is.
        """
        if hostlist.upper() == "ALL":
            return tuple(name for line in self.nodes for name in self.expanded(line.name))
        try:
            return expand(hostlist)
        except BadName:
            return (hostlist,)


def parse(text: str) -> SlurmConf:
    """Parse a slurm.conf. Never raises: slurmctld reports unknown lines."""
    settings: dict[str, Setting] = {}
    lines: dict[str, list[Line]] = {"nodename": [], "partitionname": [], "include": []}
    defaults: dict[str, dict[str, str]] = {"nodename": {}, "partitionname": {}}
    for number, line in _logical(text):
        first = line.split("=", 1)[0].strip().lower()
        if first.split()[:1] == ["include"]:
            lines["include"].append(Line(line.split(None, 1)[-1], {}, number))
        elif first in defaults:
            values = {key.lower(): value for key, value in _PAIR.findall(line)}
            name = values.pop(first, "")
            if name.upper() == "DEFAULT":
                defaults[first] |= values
            else:
                lines[first].append(Line(name, defaults[first] | values, number))
        elif found := _SETTING.match(line):
            settings[found[1].lower()] = Setting(found[1], found[2], number)
    return SlurmConf(
        settings, tuple(lines["nodename"]), tuple(lines["partitionname"]), tuple(lines["include"])
    )


def _logical(text: str) -> Iterator[tuple[int, str]]:
    """Yield lines with their number, without comments, continued ones joined."""
    held, began = "", 0
    for number, raw in enumerate(text.splitlines(), start=1):
        part = re.split(r"(?<!\\)#", raw, maxsplit=1)[0].rstrip()
        began = began or number
        if part.endswith("\\"):
            held += part[:-1] + " "
            continue
        if line := (held + part).strip():
            yield began, line
        held, began = "", 0
    if held.strip():
        yield began, held.strip()
