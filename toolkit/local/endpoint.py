"""The endpoint: a request passes the gates (faults, rates, IAM), then moto, one at a time."""

from __future__ import annotations

import functools
import io
import logging
import re
import socket
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app

from toolkit.local.aws.aws_errors import Refusal

if TYPE_CHECKING:
    from collections.abc import Iterable

    from toolkit.local.aws.iam.gate import Gate
    from toolkit.local.aws.instance_tables import Tables
    from toolkit.local.aws.request_rates import Throttle
    from toolkit.local.faults import Faults, Injection
    from toolkit.local.imds import MetadataService, StartResponse, WsgiApp

log = logging.getLogger(__name__)

_SCOPE = re.compile(r"Credential=[^/,\s]+/\d{8}/([^/,\s]+)/([^/,\s]+)/aws4_request")
_FORM = "application/x-www-form-urlencoded"
_RATED = ("ec2",)  # the service whose published rates are applied
_INSTANCE_LIST = re.compile(r"InstanceId\.\d+")
_NARROWED = re.compile(r"(Filter\.|MaxResults|NextToken|[A-Za-z]+Ids?\.\d|[A-Za-z]+Name\.\d)")
_THROTTLED = "Request limit exceeded."


@dataclass(frozen=True, slots=True)
class Call:
    """A request's service, region and action, read without parsing it in full."""

    service: str
    region: str
    action: str
    params: dict[str, str]

    @property
    def filtered(self) -> bool:
        """Return whether a read is narrowed or paged.

        EC2 has a higher rate for such reads.
        """
        return any(_NARROWED.match(name) for name in self.params)

    @property
    def resources(self) -> int:
        """Return how many instances the call is about."""
        if self.action == "RunInstances":
            count = self.params.get("MaxCount", "1")
            return int(count) if count.isdigit() else 1
        return sum(bool(_INSTANCE_LIST.fullmatch(name)) for name in self.params)

    @property
    def is_json(self) -> bool:
        """Say whether the service speaks JSON."""
        if self.service == "monitoring":
            return not self.params  # older SDKs send it a form, newer ones JSON
        return self.service not in ("ec2", "iam", "sts", "cloudformation", "s3", "sns")


def call_of(environ: dict[str, Any], body: bytes) -> Call:
    """Return the call from the signature, target header and form."""
    scope = _SCOPE.search(environ.get("HTTP_AUTHORIZATION", ""))
    region, service = scope.groups() if scope else ("us-east-1", "")
    target = str(environ.get("HTTP_X_AMZ_TARGET", ""))
    params: dict[str, str] = {}
    if str(environ.get("CONTENT_TYPE", "")).startswith(_FORM):
        params = dict(parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True))
    action = params.get("Action") or target.rpartition(".")[2]
    return Call(service, region, action, params)


class _Moto(DomainDispatcherApplication):  # type: ignore[misc]  # untyped
    """moto's application, which looks up the service of a host once.

    moto lists its own folder of 180 services, twice for each request.
    """

    def __init__(self) -> None:
        super().__init__(create_backend_app)
        self._looked = functools.lru_cache(maxsize=256)(super().get_backend_for_host)

    def get_backend_for_host(self, host: str | None) -> Any:
        return self._looked(host)


@functools.cache
def _moto() -> WsgiApp:
    """Return moto's application, which holds no state.

    Its routes take a second to build.
    """
    app: WsgiApp = _Moto()
    return app


class Endpoint:
    """The AWS API as a WSGI app."""

    def __init__(self, tables: Tables, faults: Faults, throttle: Throttle, gate: Gate) -> None:
        """Serve moto's tables behind these gates."""
        self._tables = tables
        self._gate = gate
        self._faults = faults
        self._throttle = throttle
        self._moto = _moto()

    def __call__(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        """Answer one request.

        The lock is held for moto alone, not while bytes travel.
        """
        body = _read(environ)
        call = call_of(environ, body)
        with self._tables.lock:
            injection = self._faults.next_injection(call.action) if call.action else None
            refusal = self._refusal(call, injection) or self._gate.refusal(call, environ, body)
            if refusal is not None:
                return _refuse(call, refusal, start_response)
            status, headers, content = self._answer(environ)
            refusal = self._gate.hidden(environ, call, status)
            if refusal is not None:
                return _refuse(call, refusal, start_response)
        if injection is not None and injection.lost:
            _hang_up(environ)
            return _refuse(call, Refusal("InternalError", injection.message), start_response)
        start_response(status, headers)
        return [content]

    def _refusal(self, call: Call, injection: Injection | None) -> Refusal | None:
        if injection is not None and not injection.lost:
            return Refusal(injection.code, injection.message)
        if call.service not in _RATED or not call.action:
            return None
        allowed = self._throttle.allows(
            call.region, call.action, filtered=call.filtered, resources=call.resources
        )
        return None if allowed else Refusal("RequestLimitExceeded", _THROTTLED)

    def _answer(self, environ: dict[str, Any]) -> tuple[str, list[tuple[str, str]], bytes]:
        answer: list[Any] = []

        def start(status: str, headers: list[tuple[str, str]], _info: Any = None) -> Any:
            answer[:] = [status, headers]
            return lambda _data: None

        try:
            chunks = self._moto(environ, start)
            content = b"".join(chunks)
        except Exception:
            log.exception("%s %s", environ.get("REQUEST_METHOD"), environ.get("PATH_INFO"))
            text = Refusal("InternalFailure", "The local cloud failed; its log says why.").xml()
            return "500 Internal Server Error", [("Content-Type", "text/xml")], text.encode()
        return answer[0], answer[1], content


def _read(environ: dict[str, Any]) -> bytes:
    """Read the whole body before the lock; give moto a copy."""
    stream = environ["wsgi.input"]
    length = environ.get("CONTENT_LENGTH")
    if length:
        body: bytes = stream.read(int(length))
    elif environ.get("wsgi.input_terminated"):
        body = stream.read()
        environ["CONTENT_LENGTH"] = str(len(body))
    else:
        body = b""
    environ["wsgi.input"] = io.BytesIO(body)
    return body


def _refuse(call: Call, refusal: Refusal, start_response: StartResponse) -> Iterable[bytes]:
    content_type = "application/x-amz-json-1.1" if call.is_json else "text/xml;charset=UTF-8"
    body = (refusal.json() if call.is_json else refusal.xml()).encode()
    headers = [("Content-Type", content_type), ("Content-Length", str(len(body)))]
    start_response(f"{refusal.status} {HTTPStatus(refusal.status).phrase}", headers)
    return [body]


def _hang_up(environ: dict[str, Any]) -> None:
    """Break the connection; the caller does not learn that its call succeeded."""
    connection = environ.get("werkzeug.socket")
    if isinstance(connection, socket.socket):
        connection.shutdown(socket.SHUT_RDWR)


class Router:
    """The servers on the host: the endpoint, the control API, builders' metadata."""

    def __init__(self, endpoint: WsgiApp, control: WsgiApp, imds: MetadataService) -> None:
        """Divide requests by path; machines get the bare endpoint instead."""
        self._endpoint = endpoint
        self._control = control
        self._imds = imds

    def __call__(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        """Pass the request on."""
        path = str(environ.get("PATH_INFO") or "/")
        if path.startswith("/_toolkit/"):
            return self._control(environ, start_response)
        if path.startswith("/_imds/"):
            _, _, instance_id, *rest = path.split("/", 3)
            inner = {**environ, "PATH_INFO": f"/{rest[0] if rest else ''}"}
            return self._imds.app(instance_id)(inner, start_response)
        return self._endpoint(environ, start_response)
