"""The network interfaces of a pool's instances, card by card."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from toolkit.config.instance_types import FIRST_CARD_WITHOUT_EFA

if TYPE_CHECKING:
    from toolkit.config.model import PoolSection


@dataclass(frozen=True, slots=True)
class NetworkInterface:
    """An interface in a launch template."""

    card: int
    device: int
    kind: str = ""  # EC2's interface type; "": a plain one


def network_interfaces(pool: PoolSection) -> tuple[NetworkInterface, ...]:
    """Return the interfaces; only the first has an address.

    https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/efa-acc-inst-types.html
    """
    if not pool.efa:
        return (NetworkInterface(0, 0),)
    # All types of a pool agree on this: toolkit.config.hardware.
    if pool.offerings[0].type in FIRST_CARD_WITHOUT_EFA:
        others = (NetworkInterface(card, 0, "efa-only") for card in range(1, pool.efa + 1))
        return (NetworkInterface(0, 0), *others)
    others = (NetworkInterface(card, 1, "efa-only") for card in range(1, pool.efa))
    return (NetworkInterface(0, 0, "efa"), *others)
