"""Conditional writes to S3, by any version of botocore.

botocore knows PutObject's parameter IfNoneMatch since 1.35.2. Ubuntu 24.04 has 1.34.46, which
refuses such a call before it is sent. Therefore we set the header If-None-Match ourselves.
Source: Amazon S3 User Guide, "How to prevent object overwrites with conditional writes".
"""

from __future__ import annotations

from typing import Any, Final

PARAMETERS_EVENT: Final = "before-parameter-build.s3.PutObject"
"""botocore emits this before it validates the parameters, and before-call after that."""

REQUEST_EVENT: Final = "before-call.s3.PutObject"
"""A header that is set here is signed, and sent again with each of botocore's retries."""

_PARAMETER: Final = "IfNoneMatch"
_HEADER: Final = "If-None-Match"
_CONTEXT_KEY: Final = "toolkit_if_none_match"


def attach(client: Any) -> None:
    """Make this S3 client's put_object take IfNoneMatch. Safe to repeat."""
    events = client.meta.events
    events.register(PARAMETERS_EVENT, _take_parameter, unique_id="toolkit-take-if-none-match")
    events.register(REQUEST_EVENT, _set_header, unique_id="toolkit-set-if-none-match")


def _take_parameter(params: dict[str, Any], context: dict[str, Any], **_: Any) -> None:
    # The context belongs to one call: another thread's call has its own.
    if _PARAMETER in params:
        context[_CONTEXT_KEY] = params.pop(_PARAMETER)


def _set_header(params: dict[str, Any], context: dict[str, Any], **_: Any) -> None:
    if _CONTEXT_KEY in context:
        params["headers"][_HEADER] = context[_CONTEXT_KEY]
