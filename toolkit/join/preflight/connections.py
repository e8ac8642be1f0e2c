"""Measures a path through the tunnel: connect times over TCP, and the path's MTU.

A path is measured from each side: from the site's controller, and from an instance in the cloud.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING, Final

from toolkit.errors import HeadCommandFailed, ToolkitError
from toolkit.join.preflight.facts import Connection, PathMtu, Unanswered
from toolkit.join.preflight.questions import ODD_ANSWERS, SYSTEM

if TYPE_CHECKING:
    from collections.abc import Sequence

    from toolkit.join.preflight.facts import Side
    from toolkit.join.site import SiteRunner

ATTEMPTS: Final = 5
LIMIT_SECONDS: Final = 3
"""Of one attempt: above slurmd's own TCPTimeout of 2 s."""
HEADERS: Final = 28
"""Bytes of IPv4's and ICMP's headers, which `ping -s` leaves out."""
SIZES: Final = (9001, 8500, 1500, 1460, 1440, 1420, 1400, 1380, 1360, 1320, 1280, 1024, 576)
"""Packets to try: EC2's jumbo frame, a transit gateway's, Ethernet's, tunnels', the least of IPv4.
https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/network_mtu.html"""
PING_SECONDS: Final = 2
TOO_LONG: Final = ("message too long", "frag needed")


@dataclass(frozen=True, slots=True)
class Target:
    """A port to connect to, in words such as 10.42.0.5:22."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Target:
        """Parse HOST:PORT; ValueError for anything else."""
        host, _, port = text.rpartition(":")
        valid = host.isascii() and host.replace(".", "").replace("-", "").isalnum()
        if not valid or host.startswith("-") or not (port.isascii() and port.isdecimal()):
            raise ValueError(f"expected HOST:PORT, not {text[:80]!r}")
        if not 0 < int(port) < 2**16:
            raise ValueError(f"expected a port up to 65535, not {port[:20]}")
        return cls(host, int(port))


@dataclass(frozen=True, slots=True)
class Measured:
    """Measurements of one side."""

    connections: tuple[Connection, ...] = ()
    path_mtus: tuple[PathMtu, ...] = ()
    unanswered: tuple[Unanswered, ...] = ()


def measure(runner: SiteRunner, side: Side, targets: Sequence[Target]) -> Measured:
    """Measure from one side. What can't be measured is noted."""
    connections: list[Connection] = []
    path_mtus: list[PathMtu] = []
    unanswered: list[Unanswered] = []
    for target in targets:
        try:
            connections.append(connect(runner, side, target))
            if connections[-1].outcome in {"open", "refused"}:
                path_mtus.append(path_mtu(runner, side, target.host))
        except (ToolkitError, *ODD_ANSWERS) as error:
            question = f"the path from the {side} to {target.host}:{target.port}"
            unanswered.append(Unanswered(question, str(error)[:300]))
    return Measured(tuple(connections), tuple(dict.fromkeys(path_mtus)), tuple(unanswered))


def connect(runner: SiteRunner, side: Side, target: Target) -> Connection:
    """Connect some times. Raises ToolkitError without Python, ValueError for an odd answer."""
    program = resources.files(__package__).joinpath("connect_times.py").read_bytes()
    words = (target.host, str(target.port), str(ATTEMPTS), str(LIMIT_SECONDS))
    limit = ATTEMPTS * LIMIT_SECONDS + 15
    answer = json.loads(
        runner.run([*SYSTEM, "python3", "-I", "-", *words], timeout=limit, stdin=program)
    )
    outcome, seconds = answer["outcome"], tuple(float(value) for value in answer["seconds"])
    if outcome not in {"open", "refused", "silent", "no-address"}:
        raise ValueError(f"expected an outcome, not {outcome!r}")
    return Connection(side, target.host, target.port, outcome, seconds)


def path_mtu(runner: SiteRunner, side: Side, host: str) -> PathMtu:
    """Ping with packets that may not be split, the longest first.

    A packet that is too long is either refused with an answer, or lost without one. In the latter
    case hosts do not learn of the limit, and connections stall.
    """
    if not _passes(runner, host, SIZES[-1])[0]:
        return PathMtu(side, host, None)
    told = True
    for size in SIZES[:-1]:
        passes, told_now = _passes(runner, host, size)
        if passes:
            return PathMtu(side, host, size, told)
        told = told_now
    return PathMtu(side, host, SIZES[-1], told)


def _passes(runner: SiteRunner, host: str, size: int) -> tuple[bool, bool]:
    """Return whether a packet passes, and whether anybody answered."""
    words = ("-n", "-c", "2", "-i", "0.2", "-W", str(PING_SECONDS), "-M", "do")
    argv = [*SYSTEM, "ping", *words, "-s", str(size - HEADERS), "--", host]
    try:
        runner.run(argv, timeout=5 * PING_SECONDS)
    except HeadCommandFailed as error:
        output = (error.stdout + error.stderr).lower()
        return False, any(words in output for words in TOO_LONG)
    return True, True
