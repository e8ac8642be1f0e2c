"""Refuse credentials that no HTTP header can carry, before a call is sent.

Python's own error about such a header quotes it, so that logs would show the session token.
slurmplugins/cloud/client.py does the same for the engine; jobs do not have slurmplugins. This
module imports botocore: a process that needs no AWS must not import it.
"""

from typing import Any

from botocore.exceptions import NoCredentialsError

_HEADERS = ("Authorization", "X-Amz-Security-Token")


class UnsendableCredentialsError(NoCredentialsError):
    """The error of credentials that no HTTP header can carry. It shows nothing of them."""

    fmt = "the AWS credentials have a character that no HTTP header can carry, such as a newline"


def require_sendable(client: Any) -> None:
    """Let a client's calls raise UnsendableCredentialsError.

    May be repeated.
    """
    client.meta.events.register(
        "before-send", _refuse_unsendable, unique_id="toolkit-require-sendable"
    )


def _refuse_unsendable(request: Any, **_: Any) -> None:
    for name in _HEADERS:
        value = request.headers.get(name, "")
        text = value.decode("latin-1") if isinstance(value, bytes) else value
        if not (text.isascii() and text.isprintable()):
            raise UnsendableCredentialsError
