"""Refusals of keys and of calls, in the code and the form of each service.

Sources: EC2 API reference, "Error codes". S3 API reference, "Error responses". IAM User Guide,
"Troubleshoot access denied error messages". The "Common errors" page of each JSON service.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from xml.sax.saxutils import escape

from toolkit.local.aws.aws_errors import Refusal

if TYPE_CHECKING:
    from toolkit.local.aws.iam.policy import Decision, Request

BUCKET_POLICY: Final = "bucket policy"
"""The name of a bucket's policy in refusals and in the record."""
EC2, S3, QUERY, JSON = "ec2", "s3", "query", "json"
_QUERY_SERVICES: Final = ("iam", "sts", "cloudformation", "sns", "monitoring")


@dataclass(frozen=True, slots=True)
class Denial(Refusal):
    """A refusal with a status and a form of its own."""

    http_status: int = 403
    protocol: str = EC2

    @property
    def status(self) -> int:
        """Return the HTTP status that the service sends with this code."""
        return self.http_status

    def xml(self) -> str:
        """Return the body as the service writes it."""
        error = f"<Code>{escape(self.code)}</Code><Message>{escape(self.message)}</Message>"
        request = f"<RequestId>{uuid.uuid4()}</RequestId>"
        match self.protocol:
            case "s3":
                body = f"<Error>{error}{request}</Error>"
            case "query":
                inner = f"<Error><Type>Sender</Type>{error}</Error>"
                body = f"<ErrorResponse>{inner}{request}</ErrorResponse>"
            case _:
                inner = f"<Errors><Error>{error}</Error></Errors>"
                body = f"<Response>{inner}<RequestID>{uuid.uuid4()}</RequestID></Response>"
        return f'<?xml version="1.0" encoding="UTF-8"?>\n{body}'

    def json(self) -> str:
        """Return the body of a JSON service."""
        return json.dumps({"__type": self.code, "Message": self.message})


UNKNOWN_KEY, EXPIRED, UNSIGNED, DENIED = "unknown key", "expired", "unsigned", "denied"
_INVALID: Final = "The security token included in the request is invalid."
_OLD: Final = "The security token included in the request is expired"
_CODES: Final[dict[tuple[str, str], tuple[int, str, str]]] = {
    (UNKNOWN_KEY, EC2): (
        401, "AuthFailure", "AWS was not able to validate the provided access credentials"
    ),
    (UNKNOWN_KEY, S3): (
        403,
        "InvalidAccessKeyId",
        "The AWS Access Key Id you provided does not exist in our records.",
    ),
    (UNKNOWN_KEY, QUERY): (403, "InvalidClientTokenId", _INVALID),
    (UNKNOWN_KEY, JSON): (400, "UnrecognizedClientException", _INVALID),
    (EXPIRED, EC2): (400, "RequestExpired", "Request has expired."),
    (EXPIRED, S3): (400, "ExpiredToken", "The provided token has expired."),
    (EXPIRED, QUERY): (403, "ExpiredToken", _OLD),
    (EXPIRED, JSON): (400, "ExpiredTokenException", _OLD),
    (UNSIGNED, EC2): (401, "AuthFailure", "The request must be signed"),
    (UNSIGNED, S3): (403, "AccessDenied", "Access Denied"),
    (UNSIGNED, QUERY): (403, "MissingAuthenticationToken", "Missing Authentication Token"),
    (UNSIGNED, JSON): (
        400, "MissingAuthenticationTokenException", "Missing Authentication Token"
    ),
    (DENIED, EC2): (403, "UnauthorizedOperation", ""),
    (DENIED, S3): (403, "AccessDenied", ""),
    (DENIED, QUERY): (403, "AccessDenied", ""),
    (DENIED, JSON): (400, "AccessDeniedException", ""),
}  # fmt: skip


def protocol_of(service: str) -> str:
    """Return the form in which a service speaks."""
    if service in (EC2, S3):
        return service
    return QUERY if service in _QUERY_SERVICES else JSON


def refused_key(why: str, service: str) -> Denial:
    """Return the refusal of a request whose signer is not known."""
    protocol = protocol_of(service)
    status, code, message = _CODES[why, protocol]
    return Denial(code, message, status, protocol)


def denied(caller: str, service: str, request: Request, decision: Decision) -> Denial:
    """Return the refusal of a call by policies, in AWS's words.

    AWS encodes EC2's details; the local cloud is the caller's own, and says them.
    """
    because = f"because no identity-based policy allows the {request.action} action"
    if decision.right is not None:
        kind = "a resource" if decision.right.policy == BUCKET_POLICY else "an identity"
        because = f"with an explicit deny in {kind}-based policy"
    where = "" if request.resource == "*" else f" on resource: {request.resource}"
    text = f"User: {caller} is not authorized to perform: {request.action}{where} {because}"
    if protocol_of(service) == EC2:
        keys = ", ".join(f"{key}={_words(value)}" for key, value in sorted(request.context.items()))
        text = (
            f"You are not authorized to perform this operation. {text}. "
            f"Encoded authorization failure message: [{request.action}{where}; keys: {keys}]"
        )
    return in_words(service, text)


def in_words(service: str, text: str) -> Denial:
    """Return a denial for a reason that AWS does not know."""
    protocol = protocol_of(service)
    status, code, _ = _CODES[DENIED, protocol]
    return Denial(code, text, status, protocol)


def no_service_role() -> Denial:
    """Return the refusal of a first spot launch without its role."""
    text = (
        "The provided credentials do not have permission to create the service-linked role for "
        "EC2 Spot Instances."
    )
    return Denial("AuthFailure.ServiceLinkedRoleCreationNotPermitted", text, 403, EC2)


def _words(value: str | tuple[str, ...]) -> str:
    return value if isinstance(value, str) else "/".join(value)
