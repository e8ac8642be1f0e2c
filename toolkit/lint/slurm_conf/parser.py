"""Reads any slurm.conf: settings, nodes and partitions with their lines."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from slurmplugins.errors import BadName
from slurmplugins.model.hostlist import expand

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_PAIR: Final = re.compile(r'([A-Za-z][A-Za-z0-9_]*)\s*\+?=\s*(?:"([^"]*)"|(\S*))')
"""Blanks may stand beside the equals sign, and a value in quotation marks
(src/common/parse_config.c, keyvalue_pattern)."""
_SETTING: Final = re.compile(r'\s*([A-Za-z][A-Za-z0-9_]*)\s*=\s*(?:"([^"]*)"|(.*?))\s*$')
_INFINITE: Final = {"infinite": -1, "-1": -1, "unlimited": -1}


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
        if text in _INFINITE:
            return _INFINITE[text]
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
    node_defaults: tuple[Line, ...] = ()  # lines NodeName=DEFAULT

    def get(self, name: str) -> Setting | None:
        return self.settings.get(name.lower())

    def number(self, name: str, default: int) -> int:
        """Return a setting's number, `default` if unset or no number."""
        setting = self.get(name)
        value = None if setting is None else setting.number
        return default if value is None else value

    def words(self, name: str) -> tuple[str, ...]:
        setting = self.get(name)
        return () if setting is None else setting.words

    def parameter(self, name: str, word: str) -> str | None:
        """Return the value of a word in a list.

        `10` for `requeue_delay=10`, empty for a bare word, None without the word.
        """
        for member in self.words(name):
            key, _, value = member.partition("=")
            if key.lower() == word.lower():
                return value
        return None

    @property
    def cloud_nodes(self) -> tuple[Line, ...]:
        return tuple(node for node in self.nodes if node.get("state").upper() == "CLOUD")

    def expand_hostlist(self, hostlist: str) -> tuple[str, ...]:
        """Return the names in a hostlist.

        A hostlist in another syntax is returned as it is.
        """
        if hostlist.upper() == "ALL":
            return tuple(name for line in self.nodes for name in self.expand_hostlist(line.name))
        try:
            return expand(hostlist)
        except BadName:
            return (hostlist,)


def parse(text: str) -> SlurmConf:
    """Parse a slurm.conf. Never raises: slurmctld reports unknown lines."""
    settings: dict[str, Setting] = {}
    lines: dict[str, list[Line]] = defaultdict(list)
    defaults: dict[str, dict[str, str]] = {"nodename": {}, "partitionname": {}}
    for number, line in _logical_lines(text):
        first_word = line.split("=", 1)[0].strip().lower()
        if first_word.split()[:1] == ["include"]:
            lines["include"].append(Line(line.split(None, 1)[-1], {}, number))
        elif first_word in defaults:
            pairs = _PAIR.findall(line)
            values = {key.lower(): quoted or bare for key, quoted, bare in pairs}
            name = values.pop(first_word, "")
            if name.upper() == "DEFAULT":
                defaults[first_word] |= values
                lines[f"default {first_word}"].append(Line(name, values, number))
            else:
                lines[first_word].append(Line(name, defaults[first_word] | values, number))
        elif match := _SETTING.match(line):
            value = match[2] or match[3] or ""
            settings[match[1].lower()] = Setting(match[1], value, number)
    return SlurmConf(
        settings,
        tuple(lines["nodename"]),
        tuple(lines["partitionname"]),
        tuple(lines["include"]),
        tuple(lines["default nodename"]),
    )


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield lines with their number, without comments, continued ones joined."""
    continued_text, first_number = "", 0
    for number, raw in enumerate(text.splitlines(), start=1):
        part = re.split(r"(?<!\\)#", raw, maxsplit=1)[0].rstrip()
        first_number = first_number or number
        if part.endswith("\\"):
            continued_text += part[:-1] + " "
            continue
        if line := (continued_text + part).strip():
            yield first_number, line
        continued_text, first_number = "", 0
    if continued_text.strip():
        yield first_number, continued_text.strip()
