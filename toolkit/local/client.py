"""Talking to the daemon's control API."""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any

from toolkit.errors import LocalError

if TYPE_CHECKING:
    from collections.abc import Mapping

_TIMEOUT = 30.0  # seconds; the daemon answers in milliseconds, unless the machine is swamped


class Client:
    """The control API of the daemon on one port of this host."""

    def __init__(self, port: int) -> None:
        """Talk to 127.0.0.1, past any proxy."""
        self.endpoint = f"http://127.0.0.1:{port}"
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def get(self, name: str, *, timeout: float = _TIMEOUT) -> dict[str, Any]:
        """Read something; LocalError with the daemon's words when it can't."""
        return self._send(urllib.request.Request(self._url(name)), timeout)  # noqa: S310 - http only

    def post(self, name: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Do something; LocalError with the daemon's words when it can't."""
        request = urllib.request.Request(  # noqa: S310 - http only
            self._url(name),
            data=json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        return self._send(request, _TIMEOUT)

    def _url(self, name: str) -> str:
        return f"{self.endpoint}/_toolkit/{name}"

    def _send(self, request: urllib.request.Request, timeout: float) -> dict[str, Any]:
        try:
            with self._opener.open(request, timeout=timeout) as answer:
                value: dict[str, Any] = json.load(answer)
                return value
        except urllib.error.HTTPError as error:
            raise LocalError(_error_text(error)) from None
        except (OSError, http.client.HTTPException, json.JSONDecodeError) as error:
            raise LocalError(
                f"nothing answers at {self.endpoint}: {error}",
                next_step="start the local cloud with: toolkit local up",
            ) from None


def _error_text(error: urllib.error.HTTPError) -> str:
    with error:
        try:
            return str(json.load(error)["error"])
        except (json.JSONDecodeError, KeyError, TypeError):
            return f"the local cloud answered {error.code} {error.reason}"
