"""moto's S3 over HTTP.

It is for tests that need a real client and a real socket.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextlib.contextmanager
def serving() -> Iterator[str]:
    """Yield the URL of a server in a thread of this process.

    Being in this process, the server sees a test's patches of moto.
    """
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    try:
        yield f"http://{host}:{port}"
    finally:
        server.stop()
