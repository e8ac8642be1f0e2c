"""The instance metadata service: IMDSv2 tokens, then the tree. One WSGI app an instance."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import socket
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from toolkit.local import imds_tree

if TYPE_CHECKING:
    from toolkit.local.aws.iam.principals import Sessions
    from toolkit.local.aws.instance_tables import LocalInstance, Tables

TOKEN_PATH = "/latest/api/token"  # noqa: S105 - a path, not a secret
_TTL_HEADER = "HTTP_X_AWS_EC2_METADATA_TOKEN_TTL_SECONDS"
_TOKEN_HEADER = "HTTP_X_AWS_EC2_METADATA_TOKEN"  # noqa: S105 - a header's name
LONGEST_TTL = 21600  # seconds, as AWS documents

StartResponse = Callable[..., Any]
WsgiApp = Callable[[dict[str, Any], StartResponse], Iterable[bytes]]


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer of the service."""

    status: str
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()


_NOT_FOUND = Answer("404 Not Found", b"Not Found\n")
_UNAUTHORIZED = Answer("401 Unauthorized", b"Unauthorized\n")
_FORBIDDEN = Answer("403 Forbidden", b"Forbidden\n")
_BAD_REQUEST = Answer("400 Bad Request", b"Bad Request\n")


class MetadataService:
    """Serves every instance; which one is asking is known from the socket it came by."""

    def __init__(self, tables: Tables, sessions: Sessions) -> None:
        """Read instances from the tables; tokens are good until this process ends."""
        self._tables = tables
        self._sessions = sessions
        self._key = secrets.token_bytes(32)

    def app(self, instance_id: str) -> WsgiApp:
        """Return the service as this instance sees it."""

        def serve(environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
            answer = self.answer(instance_id, environ)
            headers = [
                ("Content-Type", "text/plain"),
                ("Content-Length", str(len(answer.body))),
                ("Server", "EC2ws"),
                *answer.headers,
            ]
            start_response(answer.status, headers)
            return [answer.body]

        return serve

    def answer(self, instance_id: str, environ: Mapping[str, Any]) -> Answer:
        """Answer one request of an instance."""
        with self._tables.lock:
            instance = self._tables.instances.get(instance_id)
            if instance is None or instance.terminated_at is not None:
                return _NOT_FOUND
            options = instance.row.metadata_options
            if options.http_endpoint == "disabled":
                return _FORBIDDEN
            path = str(environ.get("PATH_INFO") or "/")
            if environ["REQUEST_METHOD"] == "PUT" and path == TOKEN_PATH:
                _limit_hops(environ, options.http_put_response_hop_limit)
                return self._token(instance, environ)
            if environ["REQUEST_METHOD"] not in ("GET", "HEAD"):
                return Answer("405 Method Not Allowed")
            if not self._allowed(instance, environ, required=options.http_tokens == "required"):
                return _UNAUTHORIZED
            return self._read(instance, path)

    def _token(self, instance: LocalInstance, environ: Mapping[str, Any]) -> Answer:
        # A forwarded request is one that a proxy on the instance was tricked into.
        if environ.get("HTTP_X_FORWARDED_FOR"):
            return _FORBIDDEN
        ttl = str(environ.get(_TTL_HEADER) or "")
        if not ttl.isdigit() or not 1 <= int(ttl) <= LONGEST_TTL:
            return _BAD_REQUEST
        expiry = str(int(self._tables.wall()) + int(ttl))
        token = f"{expiry}.{self._signature(instance.id, expiry)}"
        headers = (("X-Aws-Ec2-Metadata-Token-Ttl-Seconds", ttl),)
        return Answer("200 OK", token.encode(), headers)

    def _signature(self, instance_id: str, expiry: str) -> str:
        message = f"{instance_id}/{expiry}".encode()
        return hmac.new(self._key, message, hashlib.sha256).hexdigest()

    def _allowed(
        self, instance: LocalInstance, environ: Mapping[str, Any], *, required: bool
    ) -> bool:
        token = environ.get(_TOKEN_HEADER)
        if token is None:
            return not required
        expiry, _, signature = str(token).partition(".")
        genuine = hmac.compare_digest(signature, self._signature(instance.id, expiry))
        return genuine and expiry.isdigit() and self._tables.wall() < int(expiry)

    def _read(self, instance: LocalInstance, path: str) -> Answer:
        version, *names = [part for part in path.split("/") if part] or [""]
        if not version:
            return Answer("200 OK", "\n".join(imds_tree.VERSIONS).encode())
        if version not in imds_tree.VERSIONS:
            return _NOT_FOUND
        node: Any = imds_tree.tree(instance, self._tables.wall(), self._sessions)
        for name in names:
            if not isinstance(node, Mapping) or name not in node:
                return _NOT_FOUND
            node = node[name]
        if isinstance(node, Mapping):
            return Answer("200 OK", _listing(node).encode())
        return Answer("200 OK", node if isinstance(node, bytes) else str(node).encode())


def _listing(branch: Mapping[str, Any]) -> str:
    return "\n".join(
        f"{name}/" if isinstance(value, Mapping) else name for name, value in sorted(branch.items())
    )


def _limit_hops(environ: Mapping[str, Any], hops: int) -> None:
    """Limit a token's hops: it must not reach a container's network."""
    connection = environ.get("werkzeug.socket")
    if isinstance(connection, socket.socket):
        connection.setsockopt(socket.IPPROTO_IP, socket.IP_TTL, max(1, min(64, int(hops))))
