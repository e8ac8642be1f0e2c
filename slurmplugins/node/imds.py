"""A client of the instance metadata service, version 2 only.

Each request needs a token, which is kept until shortly before it expires. The address is the
link-local one unless AWS_EC2_METADATA_SERVICE_ENDPOINT states another, as for the AWS SDKs.
"""

from __future__ import annotations

import http.client
import os
from typing import TYPE_CHECKING, Final, Protocol
from urllib.parse import urlsplit

from slurmplugins.errors import MetadataError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from slurmplugins.system.clock import Clock

DEFAULT_ENDPOINT: Final = "http://169.254.169.254"
TOKEN_SECONDS: Final = 6 * 3600
TIMEOUT: Final = 2.0
"""Seconds to wait for an answer. The service is on this instance's own link, so it is fast."""

NOT_FOUND: Final = 404
UNAUTHORIZED: Final = 401
OK: Final = 200
_MAX_BYTES: Final = 1024 * 1024


class Metadata(Protocol):
    """A metadata service: IMDS, or a fake one in tests."""

    def get(self, path: str) -> str | None:
        """Return the text at this path; None if there is none.

        The path is below latest/meta-data/, or absolute when it starts with a slash. Raises
        MetadataError.
        """
        ...


class Transport(Protocol):
    def request(self, method: str, path: str, headers: Mapping[str, str]) -> tuple[int, str]:
        """Return status and body. Raises OSError or http.client.HTTPException."""
        ...


class Imds:
    """The instance's own metadata service, with its token."""

    def __init__(self, transport: Transport, clock: Clock) -> None:
        self._transport = transport
        self._clock = clock
        self._token = ""
        self._renew_at = 0.0

    def get(self, path: str) -> str | None:
        url_path = path if path.startswith("/") else f"/latest/meta-data/{path}"
        for is_repeat in (False, True):
            if is_repeat or self._clock.monotonic() >= self._renew_at:
                self._renew()
            headers = {"X-aws-ec2-metadata-token": self._token}
            status, body = self._request("GET", url_path, headers)
            if status == OK:
                return body
            if status == NOT_FOUND:
                return None
            if status != UNAUTHORIZED:
                break
        raise MetadataError(f"instance metadata {path}: HTTP {status}")

    def _renew(self) -> None:
        headers = {"X-aws-ec2-metadata-token-ttl-seconds": str(TOKEN_SECONDS)}
        status, body = self._request("PUT", "/latest/api/token", headers)
        if status != OK:
            raise MetadataError(f"instance metadata token: HTTP {status}")
        self._token = body.strip()
        self._renew_at = self._clock.monotonic() + TOKEN_SECONDS * 0.9

    def _request(self, method: str, path: str, headers: Mapping[str, str]) -> tuple[int, str]:
        try:
            return self._transport.request(method, path, headers)
        except (OSError, http.client.HTTPException) as error:
            raise MetadataError(f"instance metadata {path}: {error}") from error


class HttpTransport:
    """Opens a connection for each request: the service is local, and asked a few times a second."""

    def __init__(self, endpoint: str | None = None) -> None:
        url = endpoint or os.environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT") or DEFAULT_ENDPOINT
        parts = urlsplit(url)
        self._host = parts.hostname or "169.254.169.254"
        self._port = parts.port or 80
        self._prefix = parts.path.rstrip("/")

    def request(self, method: str, path: str, headers: Mapping[str, str]) -> tuple[int, str]:
        connection = http.client.HTTPConnection(self._host, self._port, timeout=TIMEOUT)
        try:
            connection.request(method, self._prefix + path, headers=dict(headers))
            response = connection.getresponse()
            return response.status, response.read(_MAX_BYTES).decode("utf-8", errors="replace")
        finally:
            connection.close()
