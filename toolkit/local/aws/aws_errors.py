"""Saying no the way AWS says it: code, message and HTTP status of each refusal."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass
from xml.sax.saxutils import escape

from moto.ec2.exceptions import EC2ClientError
from werkzeug.exceptions import HTTPException

# The codes that EC2 answers with a server error. It matters: botocore retries these on its own.
SERVER_CODES = {
    "InsufficientInstanceCapacity": 500,
    "InternalError": 500,
    "InternalFailure": 500,
    "RequestLimitExceeded": 503,
    "ServiceUnavailable": 503,
    "Unavailable": 503,
}


@dataclass(frozen=True, slots=True)
class Refusal:
    """An error answer of the EC2 or a JSON protocol."""

    code: str
    message: str

    @property
    def status(self) -> int:
        """Return the HTTP status EC2 sends with this code."""
        return SERVER_CODES.get(self.code, 400)

    def xml(self) -> str:
        """Return the body as EC2 and the other query services write it."""
        return (
            '<?xml version="1.0" encoding="UTF-8"?>\n'
            f"<Response><Errors><Error><Code>{escape(self.code)}</Code>"
            f"<Message>{escape(self.message)}</Message></Error></Errors>"
            f"<RequestID>{uuid.uuid4()}</RequestID></Response>"
        )

    def json(self) -> str:
        """Return the body as the JSON services write it."""
        return json.dumps({"__type": self.code, "message": self.message})


class ServerRefusal(HTTPException):  # type: ignore[misc]  # werkzeug is untyped to mypy here
    """A refusal with a status of its own; moto answers it as it stands."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.xml())
        self.code = refusal.status
        self.refusal = refusal

    def get_headers(self, *_args: object, **_kwargs: object) -> list[tuple[str, str]]:
        """Return the headers of an EC2 error."""
        return [("Content-Type", "text/xml;charset=UTF-8")]


def ec2_error(code: str, message: str) -> Exception:
    """Return the exception that makes moto's EC2 answer `code`, to be raised."""
    if code in SERVER_CODES:
        return ServerRefusal(Refusal(code, message))
    error: Exception = EC2ClientError(code, message)
    return error


def code_of(error: Exception) -> tuple[str, str]:
    """Return the AWS code and message of moto's or our exception."""
    if isinstance(error, ServerRefusal):
        return error.refusal.code, error.refusal.message
    code = getattr(error, "code", None) or getattr(error, "error_type", None)
    message = getattr(error, "message", None) or str(error)
    return (code if isinstance(code, str) else "InternalError"), str(message)
