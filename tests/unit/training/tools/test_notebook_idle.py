"""A notebook is in use while a kernel computes, and briefly after.

An open page alone is no use.
"""

from http import client

import pytest

from toolkit.training.tools import notebook_idle
from toolkit.training.tools.notebook_idle import wait_until_idle

LIMIT = 600.0


def kernel(at, state="idle"):
    return {"last_activity": f"2026-10-01T00:{at:02d}:00.000000Z", "execution_state": state}


def terminal(at):
    return {"last_activity": f"2026-10-01T00:{at:02d}:00.000000Z"}


def minutes_until_idle(what_is_found):
    """Return the minutes until the notebook counts as idle.

    `what_is_found` returns the kernels and terminals at a minute after the start.
    """
    began = now = 1790812800.0  # 2026-10-01T00:00:00Z

    def sleep(seconds):
        nonlocal now
        now += seconds

    def look():
        return what_is_found((now - began) / 60)

    wait_until_idle(look, LIMIT, clock=lambda: now, sleep=sleep)
    return round((now - began) / 60)


@pytest.mark.parametrize(
    ("found", "minutes"),
    [
        (lambda _: [], 10),
        (lambda _: [kernel(at=0), terminal(at=0)], 10),
        (lambda _: [kernel(at=7)], 17),
        (lambda _: [kernel(at=2), terminal(at=7)], 17),
        (lambda now: [kernel(at=0, state="busy" if now <= 20 else "idle")], 30),
        (lambda now: [kernel(at=7)] if now < 9 else [], 17),  # shut down at minute 9
    ],
    ids=["nothing", "unused", "kernel", "terminal", "computes", "shut down"],
)
def test_the_idle_time_begins_at_the_last_use_of_a_kernel_or_a_terminal(found, minutes):
    assert minutes_until_idle(found) == minutes


def test_a_notebook_that_cannot_be_asked_counts_as_used_and_the_log_says_so_once(capsys):
    def found(now):
        if now < 5:
            raise ConnectionRefusedError(111, "Connection refused")
        return []

    assert minutes_until_idle(found) == 15
    assert capsys.readouterr().err.count("the notebook does not answer") == 1


@pytest.mark.parametrize("answer", [[{"last_activity": None}], ["no kernel"], [{}], [None]])
def test_a_notebook_that_answers_in_another_shape_counts_as_used(answer, capsys):
    assert minutes_until_idle(lambda now: answer if now < 5 else []) == 15
    assert capsys.readouterr().err.count("the notebook does not answer") == 1


def test_only_a_server_without_terminals_has_none(monkeypatch):
    """Refuse a 404 for the kernels' page.

    With another base URL both pages are missing, although kernels may compute.
    """

    class NotFound:
        status, reason = 404, "Not Found"

    monkeypatch.setattr(client.HTTPConnection, "request", lambda *_, **__: None)
    monkeypatch.setattr(client.HTTPConnection, "getresponse", lambda _: NotFound())
    assert notebook_idle._request("127.0.0.1:1", "terminals") == []
    with pytest.raises(ValueError, match="404 Not Found"):
        notebook_idle._request("127.0.0.1:1", "kernels")
