"""The control API below /_toolkit/: health, status and the fault drills. Host only."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from toolkit.local.faults import Faults, Injection, Pattern
from toolkit.local.instance_events import DEFAULT_NOTICE, InstanceEvents, NoSuchTarget, describe

if TYPE_CHECKING:
    from toolkit.local.aws.iam.record import Record
    from toolkit.local.aws.instance_tables import Tables
    from toolkit.local.aws.request_rates import Throttle
    from toolkit.local.imds import StartResponse
    from toolkit.local.options import Options

_BODY_LIMIT = 64 * 1024
Handler = Callable[[Mapping[str, Any]], dict[str, Any]]


class Control:
    """Answers `toolkit local`'s commands."""

    def __init__(  # noqa: PLR0917 - the parts of the cloud, put together in one place
        self,
        options: Options,
        tables: Tables,
        faults: Faults,
        throttle: Throttle,
        record: Record,
        shutdown: Callable[[], None],
    ) -> None:
        """`shutdown` asks the daemon to end, and returns at once."""
        self._options = options
        self._tables = tables
        self._faults = faults
        self._throttle = throttle
        self._record = record
        self._shutdown = shutdown
        self._instance_events = InstanceEvents(tables)
        self._handlers: dict[tuple[str, str], Handler] = {
            ("GET", "health"): self._health,
            ("GET", "status"): self._status,
            ("GET", "rights"): self._rights,
            ("POST", "interrupt"): self._interrupt,
            ("POST", "rebalance"): self._rebalance,
            ("POST", "impair"): self._impair,
            ("POST", "schedule"): self._schedule,
            ("POST", "exhaust"): self._exhaust,
            ("POST", "throttle"): self._throttle_calls,
            ("POST", "shutdown"): self._shut_down,
        }

    def __call__(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        """Answer one request in JSON."""
        name = str(environ["PATH_INFO"]).removeprefix("/_toolkit/").strip("/")
        handler = self._handlers.get((environ["REQUEST_METHOD"], name))
        if handler is None:
            return _json(start_response, "404 Not Found", {"error": f"unknown request: {name}"})
        try:
            answer = handler(_body(environ))
        except NoSuchTarget as error:
            return _json(start_response, "404 Not Found", {"error": str(error)})
        except (ValueError, TypeError, KeyError) as error:
            return _json(start_response, "400 Bad Request", {"error": str(error)})
        return _json(start_response, "200 OK", answer)

    def _health(self, _request: Mapping[str, Any]) -> dict[str, Any]:
        return {"status": "ok", "pid": os.getpid(), "state": str(self._options.state)}

    def _status(self, _request: Mapping[str, Any]) -> dict[str, Any]:
        with self._tables.lock:
            instances = [describe(instance) for instance in self._tables.instances.values()]
            limits = [
                {"pool": str(rule.pattern), "free": rule.free}
                for rule in self._faults.rules.values()
            ]
            injections = [
                {
                    "action": injection.action,
                    "code": injection.code,
                    "count": injection.count,
                    "lost": injection.lost,
                    "inside": injection.inside,
                }
                for injection in self._faults.injections
            ]
        return {
            "pid": os.getpid(),
            "endpoint": f"http://127.0.0.1:{self._options.port}",
            "state": str(self._options.state),
            "driver": self._options.driver,
            "instances": instances,
            "limits": limits,
            "injections": injections,
            "rates": self._throttle.enabled,
        }

    def _rights(self, _request: Mapping[str, Any]) -> dict[str, Any]:
        with self._tables.lock:
            return self._record.to_json()

    def _interrupt(self, request: Mapping[str, Any]) -> dict[str, Any]:
        notice = float(request.get("notice", DEFAULT_NOTICE))
        if notice < 0:
            raise ValueError("a notice can't be negative")
        return describe(self._instance_events.interrupt(str(request["target"]), notice))

    def _rebalance(self, request: Mapping[str, Any]) -> dict[str, Any]:
        return describe(self._instance_events.rebalance(str(request["target"])))

    def _impair(self, request: Mapping[str, Any]) -> dict[str, Any]:
        ago, restore = float(request.get("ago", 0)), bool(request.get("restore"))
        return describe(self._instance_events.impair(str(request["target"]), ago, restore=restore))

    def _schedule(self, request: Mapping[str, Any]) -> dict[str, Any]:
        code, seconds = str(request.get("event", "instance-retirement")), float(request["seconds"])
        target, cancel = str(request["target"]), bool(request.get("cancel"))
        return describe(self._instance_events.schedule(target, code, seconds, cancel=cancel))

    def _exhaust(self, request: Mapping[str, Any]) -> dict[str, Any]:
        pool = request.get("pool")
        pattern = Pattern.parse(str(pool)) if pool else None
        with self._tables.lock:
            if request.get("restore"):
                self._faults.restore(pattern)
                return {"pool": str(pattern) if pattern else "*", "restored": True}
            if pattern is None:
                raise ValueError("pool is missing: TYPE[/ZONE[/MARKET]], spot or on-demand")
            free = int(request.get("free", 0))
            seconds = request.get("seconds")
            self._faults.limit(
                pattern,
                free,
                returns=bool(request.get("returns")),
                seconds=None if seconds is None else float(seconds),
            )
        return {"pool": str(pattern), "free": free, "seconds": seconds}

    def _throttle_calls(self, request: Mapping[str, Any]) -> dict[str, Any]:
        with self._tables.lock:
            if "rates" in request:
                self._throttle.enabled = bool(request["rates"])
                return {"rates": self._throttle.enabled}
            if request.get("clear"):
                self._faults.clear_injections()
                return {"cleared": True}
            count, seconds = request.get("count"), request.get("seconds")
            code = str(request.get("code") or "RequestLimitExceeded")
            injection = Injection(
                action=str(request.get("action") or "*"),
                code=code,
                message=str(request.get("message") or "Request limit exceeded."),
                count=None if count is None else int(count),
                until=None if seconds is None else self._tables.clock() + float(seconds),
                lost=bool(request.get("lost")),
                inside=bool(request.get("inside")),
            )
            self._faults.inject(injection)
        return {"action": injection.action, "code": code, "count": count, "seconds": seconds}

    def _shut_down(self, _request: Mapping[str, Any]) -> dict[str, Any]:
        self._shutdown()
        return {"status": "ending"}


def _body(environ: Mapping[str, Any]) -> Mapping[str, Any]:
    length = int(environ.get("CONTENT_LENGTH") or 0)
    if length > _BODY_LIMIT:
        raise ValueError(f"the request has more than {_BODY_LIMIT} bytes")
    text = environ["wsgi.input"].read(length) if length else b""
    # A web page can make a browser post a form here, but not JSON without being asked first.
    if environ["REQUEST_METHOD"] == "POST" and environ.get("CONTENT_TYPE") != "application/json":
        raise ValueError("Content-Type must be application/json")
    value = json.loads(text) if text else {}
    if not isinstance(value, dict):
        raise TypeError("a JSON object is expected")
    return value


def _json(start_response: StartResponse, status: str, value: object) -> Iterable[bytes]:
    body = json.dumps(value).encode()
    headers = [("Content-Type", "application/json"), ("Content-Length", str(len(body)))]
    start_response(status, headers)
    return [body]
