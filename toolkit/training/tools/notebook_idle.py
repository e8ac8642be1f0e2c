"""Wait until a notebook server is idle, watched from beside it.

    python -m toolkit.training notebook-idle ADDRESS:PORT SECONDS

ends with 0 once the server was idle for that long. Idle means: no kernel has computed or printed,
and no terminal was typed in or has printed. JUPYTER_TOKEN is the server's. While the server does
not answer, it counts as used.

Jupyter's own idle time does not serve: it counts the requests of an open page as activity.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from http import HTTPStatus, client
from typing import Any

POLL_SECONDS = 15.0
_REQUEST_TIMEOUT = 10.0

_PARSE_ERRORS = (ValueError, LookupError, TypeError, AttributeError)
"""The errors of parsing an answer that has another shape than Jupyter's."""

ListResources = Callable[[], Iterable[Mapping[str, Any]]]


def last_use(resources: Iterable[Mapping[str, Any]], now: float) -> float:
    """Return when any of these kernels and terminals was used last.

    Epoch seconds; `now` while a kernel computes.
    """
    times = [
        now if resource.get("execution_state") == "busy" else _seconds(resource["last_activity"])
        for resource in resources
    ]
    return max(times, default=float("-inf"))


def wait_until_idle(
    list_resources: ListResources,
    limit: float,
    *,
    clock: Callable[[], float] = time.time,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Return when no listed kernel or terminal was used for `limit` seconds."""
    last_used, is_unreachable = clock(), False
    while clock() - last_used < limit:
        sleep(min(POLL_SECONDS, limit / 2))
        try:
            # A kernel that was shut down is no longer listed: the last use seen so far is kept.
            last_used, is_unreachable = max(last_used, last_use(list_resources(), clock())), False
        except (OSError, client.HTTPException, *_PARSE_ERRORS) as error:
            if not is_unreachable:
                _log(f"the notebook does not answer, and counts as used: {error!r}")
            last_used, is_unreachable = clock(), True


def main(arguments: list[str]) -> int:
    address, limit = arguments[0], float(arguments[1])
    wait_until_idle(lambda: [*_request(address, "kernels"), *_request(address, "terminals")], limit)
    return 0


def _request(address: str, kind: str) -> list[dict[str, Any]]:
    # Not through a proxy, which urllib would take from the environment.
    connection = client.HTTPConnection(address, timeout=_REQUEST_TIMEOUT)
    token = os.environ.get("JUPYTER_TOKEN", "")
    try:
        connection.request("GET", f"/api/{kind}", headers={"Authorization": f"token {token}"})
        response = connection.getresponse()
        if response.status == HTTPStatus.NOT_FOUND and kind == "terminals":
            return []  # a server without any
        if response.status != HTTPStatus.OK:
            raise ValueError(f"{response.status} {response.reason} for /api/{kind}")
        return list(json.load(response))
    finally:
        connection.close()


def _seconds(moment: str) -> float:
    return datetime.fromisoformat(moment).timestamp()


def _log(text: str) -> None:
    sys.stderr.write(f"[toolkit] {text}\n")
    sys.stderr.flush()
