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

LOOK_SECONDS = 15.0
_ANSWER_SECONDS = 10.0

_NO_ANSWER = (ValueError, LookupError, TypeError, AttributeError)
"""The errors of parsing an answer that has another shape than Jupyter's."""

Look = Callable[[], Iterable[Mapping[str, Any]]]


def last_use(found: Iterable[Mapping[str, Any]], now: float) -> float:
    """Return when any of these kernels and terminals was used last.

    Epoch seconds; `now` while a kernel computes.
    """
    times = [
        now if one.get("execution_state") == "busy" else _seconds(one["last_activity"])
        for one in found
    ]
    return max(times, default=float("-inf"))


def wait_until_idle(
    look: Look,
    limit: float,
    *,
    clock: Callable[[], float] = time.time,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Return when nothing that `look` lists was used for `limit` seconds."""
    used, silent = clock(), False
    while clock() - used < limit:
        sleep(min(LOOK_SECONDS, limit / 2))
        try:
            # A kernel that was shut down is no longer listed: the last use seen so far is kept.
            used, silent = max(used, last_use(look(), clock())), False
        except (OSError, client.HTTPException, *_NO_ANSWER) as error:
            if not silent:
                _say(f"can't ask the notebook whether it is used, and take it to be: {error!r}")
            used, silent = clock(), True


def main(arguments: list[str]) -> int:
    address, limit = arguments[0], float(arguments[1])
    wait_until_idle(lambda: [*_ask(address, "kernels"), *_ask(address, "terminals")], limit)
    return 0


def _ask(address: str, what: str) -> list[dict[str, Any]]:
    # Not through a proxy, which urllib would take from the environment.
    connection = client.HTTPConnection(address, timeout=_ANSWER_SECONDS)
    token = os.environ.get("JUPYTER_TOKEN", "")
    try:
        connection.request("GET", f"/api/{what}", headers={"Authorization": f"token {token}"})
        answer = connection.getresponse()
        if answer.status == HTTPStatus.NOT_FOUND and what == "terminals":
            return []  # a server without any
        if answer.status != HTTPStatus.OK:
            raise ValueError(f"{answer.status} {answer.reason} for /api/{what}")
        return list(json.load(answer))
    finally:
        connection.close()


def _seconds(moment: str) -> float:
    return datetime.fromisoformat(moment).timestamp()


def _say(text: str) -> None:
    sys.stderr.write(f"[toolkit] {text}\n")
    sys.stderr.flush()
