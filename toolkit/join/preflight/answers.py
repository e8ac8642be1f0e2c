"""Reads the answers of a site's commands. Pure; ValueError for another shape.

Names, numbers and comments in them are the site's, and nothing here trusts them.
"""

from __future__ import annotations

import json
import re
from ipaddress import IPv4Network
from typing import TYPE_CHECKING, Any, Final

from toolkit.join.preflight.facts import Account, Clock, License, Route, SlurmReservation
from toolkit.slurm_nodes import number, parse_node, words

if TYPE_CHECKING:
    from collections.abc import Iterator

    from toolkit.slurm_nodes import NodeInfo

MOST_TEXT: Final = 64 * 2**20
"""No answer of a cluster with 20,000 nodes is longer."""
_PORT: Final = re.compile(r"LISTEN\s+\d+\s+\d+\s+\S*:(\d{1,5})\s")
_DBD_VERSION: Final = re.compile(r"^SLURMDBD_VERSION\s*=\s*(\S+)$", re.MULTILINE)
_FEDERATION: Final = re.compile(r"^Federation:\s+(\S+)", re.MULTILINE)
_SYNCHRONIZED: Final = re.compile(r"^NTPSynchronized=(yes|no)$", re.MULTILINE)
_DEFAULT: Final = "0.0.0.0/0"
_CHRONY_OFFSET: Final = 4  # of `chronyc -c tracking`: reference, address, stratum, time, offset, …
_CHRONY_LEAP: Final = 13
_UNSYNCHRONIZED: Final = "Not synchronised"


def nodes(text: str) -> tuple[NodeInfo, ...]:
    """Read `scontrol show nodes --json`."""
    return tuple(parse_node(item) for item in _items(text, "nodes"))


def licenses(text: str) -> tuple[License, ...]:
    """Read `scontrol show licenses --json`."""
    return tuple(
        License(
            str(item.get("LicenseName") or ""),
            number(item.get("Total")) or 0,
            number(item.get("Used")) or 0,
        )
        for item in _items(text, "licenses")
    )


def reservations(text: str) -> tuple[SlurmReservation, ...]:
    """Read `scontrol show reservations --json`."""
    return tuple(
        SlurmReservation(
            str(item.get("name") or ""),
            frozenset(word.upper() for word in words(item.get("flags"))),
        )
        for item in _items(text, "reservations")
    )


def passwd(text: str) -> dict[str, Account]:
    """Read `getent passwd`. A line of another shape is passed over."""
    accounts: dict[str, Account] = {}
    for line in text.splitlines():
        fields = line.split(":")
        if len(fields) == 7 and all(_is_id(field) for field in fields[2:4]):  # noqa: PLR2004
            accounts.setdefault(
                fields[0], Account(fields[0], int(fields[2]), int(fields[3]), fields[5])
            )
    return accounts


def uids(text: str) -> frozenset[int]:
    """Read uids, one a line, with what may follow a bar."""
    firsts = (line.partition("|")[0].strip() for line in text.splitlines())
    return frozenset(int(first) for first in firsts if _is_id(first))


def listening_ports(text: str) -> frozenset[int]:
    """Read `ss -H -l -t -n`."""
    return frozenset(int(port) for port in _PORT.findall(text + "\n"))


def routes(text: str) -> tuple[Route, ...]:
    """Read `ip -json -4 route show`."""
    entries = _list(json.loads(text), "ip route")
    return tuple(_routes(entries))


def _routes(entries: list[Any]) -> Iterator[Route]:
    for item in entries:
        if not isinstance(item, dict) or item.get("type", "unicast") != "unicast":
            continue
        destination = str(item.get("dst") or "")
        network = _DEFAULT if destination == "default" else destination
        yield Route(
            IPv4Network(network, strict=False), str(item.get("dev") or ""), "gateway" not in item
        )


def addresses(text: str) -> tuple[str, ...]:
    """Read `getent ahostsv4 NAME`: each address once."""
    firsts = (line.split(None, 1)[0] for line in text.splitlines() if line.strip())
    return tuple(dict.fromkeys(firsts))


def chrony(text: str) -> Clock:
    """Read `chronyc -c tracking`."""
    fields = text.strip().split(",")
    if len(fields) <= _CHRONY_LEAP:
        raise ValueError("expected the columns of chronyc -c tracking")
    return Clock(fields[_CHRONY_LEAP] != _UNSYNCHRONIZED, abs(float(fields[_CHRONY_OFFSET])))


def timedatectl(text: str) -> Clock:
    """Read `timedatectl show`."""
    match = _SYNCHRONIZED.search(text)
    if match is None:
        raise ValueError("expected NTPSynchronized")
    return Clock(match[1] == "yes")


def slurmdbd_version(text: str) -> str:
    """Read `sacctmgr show config`; "" where slurmdbd's part is not in it."""
    match = _DBD_VERSION.search(text)
    return match[1] if match else ""


def federation(text: str) -> str:
    """Read `scontrol show federation`; "" for a cluster of none."""
    match = _FEDERATION.search(text)
    return match[1] if match else ""


def _items(text: str, key: str) -> list[dict[str, Any]]:
    if len(text) > MOST_TEXT:
        raise ValueError(f"expected at most {MOST_TEXT} characters")
    answer = json.loads(text)
    if not isinstance(answer, dict):
        raise ValueError("expected an object")  # noqa: TRY004 - one error for any shape
    items = _list(answer.get(key), key)
    if any(not isinstance(item, dict) for item in items):
        raise ValueError(f"expected objects in {key}")
    return items


def _list(value: object, name: str) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(f"expected a list of {name}")  # noqa: TRY004 - one error for any shape
    return value


def _is_id(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= len(str(2**32))
