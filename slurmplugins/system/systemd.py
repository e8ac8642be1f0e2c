"""Notes of a service to systemd, for units of type `notify`."""

from __future__ import annotations

import os
import socket


def notify_ready() -> None:
    """Tell systemd that this service has started.

    Programs that wait for it go on. Does nothing without systemd. Raises OSError. See sd_notify(3).
    """
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    if address.startswith("@"):
        address = f"\0{address[1:]}"  # an abstract socket
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as notification:
        notification.connect(address)
        notification.sendall(b"READY=1")
