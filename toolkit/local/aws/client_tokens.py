"""Client tokens: the same request answered the same, however often it is sent."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

from toolkit.local.aws.aws_errors import ec2_error
from toolkit.local.aws.request_limits import check_token

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


class ClientTokens:
    """Remembers the use of each token for as long as the local cloud runs.

    EC2 keeps a token for at least 24 hours and answers a repetition with the first
    answer. Once the instances of that answer are terminated, it refuses the repetition.
    A refused request does not use its token up.
    """

    def __init__(self) -> None:
        """Begin with no token used."""
        self._results: dict[tuple[str, str, str], tuple[str, Any]] = {}

    def run_once(
        self,
        action: str,
        region: str,
        params: Mapping[str, Any],
        make: Callable[[], Any],
        is_terminated: Callable[[Any], bool] = lambda _: False,
    ) -> Any:
        """Return `make`'s result, or its result at the token's first use.

        `is_terminated` returns whether the instances of that result are terminated.
        """
        token = params.get("ClientToken")
        if not token:
            return make()
        check_token(token)
        key = (action, region, str(token))
        digest = fingerprint(params)
        if key in self._results:
            earlier_digest, result = self._results[key]
            if earlier_digest != digest:
                message = (
                    "Arguments on this idempotent request are inconsistent with arguments used "
                    "in previous request(s)."
                )
                raise ec2_error("IdempotentParameterMismatch", message)
            if is_terminated(result):
                message = (
                    "The client token you have provided is associated with a terminated instance. "
                    "Please use a different client token."
                )
                raise ec2_error("IdempotentInstanceTerminated", message)
            return result
        result = make()
        self._results[key] = (digest, result)
        return result


def fingerprint(params: Mapping[str, Any]) -> str:
    """Return a digest of every parameter, order of keys apart."""
    text = json.dumps(params, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()
