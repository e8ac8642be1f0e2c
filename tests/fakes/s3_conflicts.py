"""S3's conflict: its answer to a conditional write while another operation changes the same key."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from botocore.awsrequest import AWSResponse

if TYPE_CHECKING:
    from collections.abc import Iterator

BODY = (
    b"<Error><Code>ConditionalRequestConflict</Code>"
    b"<Message>The conditional request cannot succeed due to a conflicting operation</Message>"
    b"</Error>"
)


class Conflicts:
    """A client whose next conditional calls of one operation are answered with 409.

    These calls do not reach the server.
    """

    def __init__(self, client: Any, operation: str, count: int) -> None:
        self.left = count
        self._lock = threading.Lock()
        client.meta.events.register(f"before-send.s3.{operation}", self._answer)

    def _answer(self, request: Any, **_: Any) -> AWSResponse | None:
        with self._lock:
            if "If-None-Match" not in request.headers or not self.left:
                return None
            self.left -= 1
        return AWSResponse(request.url, 409, {"Content-Type": "application/xml"}, _Raw())


class _Raw:
    def stream(self, **_: Any) -> Iterator[bytes]:
        yield BODY
