"""Join standard input and output with a port of the loopback; runs inside a machine.

It is what SSM's port forwarding does on AWS. Called as `python3 -I -c SOURCE PORT`, so it imports
nothing of ours.
"""

from __future__ import annotations

import os
import socket
import sys
import threading

SIZE = 65_536


def send_all(link: socket.socket) -> None:
    """Send standard input until it ends, then say that no more comes."""
    while chunk := os.read(0, SIZE):
        link.sendall(chunk)
    link.shutdown(socket.SHUT_WR)


def main() -> None:
    """Relay until the port's side closes."""
    with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as link:
        threading.Thread(target=send_all, args=(link,), daemon=True).start()
        while chunk := link.recv(SIZE):
            view = memoryview(chunk)
            while view:
                view = view[os.write(1, view) :]


if __name__ == "__main__":
    main()
