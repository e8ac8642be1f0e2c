"""Keep the instance metadata service to the users that need the instance's role.

The service gives the role's credentials to every process that connects to it. Policy routing
refuses the others: a rule matches the uid that created a socket, and `prohibit` answers EACCES
(ip-rule(8); fib_rule_match and fib4_rule_action in Linux).
"""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from slurmplugins.errors import MetadataOpen

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable
    from pathlib import Path

    from slurmplugins.system.command import Runner

PREFERENCE: Final = 0
"""The first place. Rules that are added later without a preference come behind it, and
`ip rule flush` leaves it (fib_default_rule_pref in Linux, flush_rule in iproute2)."""

ROOT: Final = 0
LAST_UID: Final = 2**32 - 2
"""The largest uid: the next number stands for none."""

PORT: Final = 80
COMMAND_SECONDS: Final = 10.0
_EXISTS: Final = "File exists"
"""The kernel's answer to a rule that is there already."""
_LOOPBACK: Final = {socket.AF_INET6: "::1"}


@dataclass(frozen=True, slots=True)
class Service:
    """The metadata service in one version of IP."""

    family: socket.AddressFamily
    option: str
    """The option of ip(8) for this version."""
    address: str


IPV4: Final = Service(socket.AF_INET, "-4", "169.254.169.254")
IPV6: Final = Service(socket.AF_INET6, "-6", "fd00:ec2::254")


@dataclass(frozen=True, slots=True)
class UidRange:
    """Uids from the first to the last, both included."""

    first: int
    last: int


def services(proc: Path) -> tuple[Service, ...]:
    """Return the addresses that this kernel can reach."""
    return (IPV4, IPV6) if (proc / "net/if_inet6").exists() else (IPV4,)


def refused_ranges(allowed: Collection[int]) -> tuple[UidRange, ...]:
    """Return all uids but the allowed ones."""
    bounds = [-1, *sorted(set(allowed)), LAST_UID + 1]
    return tuple(
        UidRange(below + 1, above - 1)
        for below, above in pairwise(bounds)
        if below + 1 <= above - 1
    )


def rule_argv(service: Service, uids: UidRange) -> list[str]:
    """Return the command that adds the rule for these users."""
    return [
        "/usr/sbin/ip", service.option, "rule", "add", "preference", str(PREFERENCE),
        "to", service.address, "uidrange", f"{uids.first}-{uids.last}", "prohibit",
    ]  # fmt: skip


def restrict(runner: Runner, addresses: Iterable[Service], allowed: Collection[int]) -> None:
    """Add the rules that refuse all users but the allowed ones.

    May be repeated. Raises MetadataOpen when a rule can't be added.
    """
    for service in addresses:
        for uids in refused_ranges(allowed):
            result = runner.run(rule_argv(service, uids), timeout=COMMAND_SECONDS)
            if result.returncode and _EXISTS not in result.stderr:
                why = (result.stderr or result.stdout).strip()[-200:]
                raise MetadataOpen(f"no rule for {service.address}: {why}")


def is_refused(service: Service, uid: int) -> bool:
    """Return whether this user's sockets are refused, as only root can ask.

    Nothing is sent: for a UDP socket, connect(2) only looks up the route. The whole process has
    the other user's identity meanwhile.
    """
    own_uid = os.geteuid()
    os.seteuid(uid)
    try:
        with socket.socket(service.family, socket.SOCK_DGRAM) as probe:
            if own_address := _LOOPBACK.get(service.family):
                # Without an address to send from, the kernel would not even look up the route.
                try:
                    probe.bind((own_address, 0))
                except OSError:
                    return True  # no address at all: nothing is reached
            probe.connect((service.address, PORT))
    except PermissionError:
        return True
    except OSError:
        return False  # not reached now, but no rule says so
    finally:
        os.seteuid(own_uid)
    return False


def check(
    addresses: Iterable[Service],
    allowed: Collection[int],
    refused: Callable[[Service, int], bool] = is_refused,
) -> None:
    """Try the service as users of each refused range.

    These are its first and last one. Raises MetadataOpen when one of them is not refused.
    """
    for service in addresses:
        for uids in refused_ranges(allowed):
            for uid in dict.fromkeys((uids.first, uids.last)):
                if not refused(service, uid):
                    raise MetadataOpen(
                        f"uid {uid} is not refused at {service.address}, where the credentials of"
                        " the instance's role are"
                    )
