"""Stores in AWS: the ledger's S3 bucket, and the cluster's secret in Secrets Manager."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, Any

from slurmplugins.cloud.client import call, translate
from slurmplugins.errors import CloudError, NotFound
from slurmplugins.model import json_input
from slurmplugins.system.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


class S3Store:
    """An implementation of `cloud.port.ObjectStore` on a botocore S3 client, for one bucket."""

    def __init__(self, bucket: str, connect: Callable[[], Any]) -> None:
        self._bucket = bucket
        self._connect = connect
        self._client: Any = None
        self._connecting = threading.Lock()
        self._clock = SystemClock()

    def create(self, key: str, value: Mapping[str, object]) -> bool:
        try:
            self._put(key, value, IfNoneMatch="*")
        except CloudError as error:
            if error.code == "PreconditionFailed":
                return False
            raise
        return True

    def put(self, key: str, value: Mapping[str, object]) -> None:
        self._put(key, value)

    def _put(self, key: str, value: Mapping[str, object], **conditions: str) -> None:
        body = json.dumps(value, separators=(",", ":")).encode()
        self._call("put_object", Key=key, Body=body, ContentType="application/json", **conditions)

    def put_text(self, key: str, text: str) -> None:
        self._call("put_object", Key=key, Body=text.encode(), ContentType="text/plain")

    def get(self, key: str) -> dict[str, object] | None:
        try:
            value = json_input.loads(self._call("get_object", Key=key))
        except NotFound:
            return None
        except ValueError:
            return None  # damaged: treated as absent, and about to be replaced
        return value if isinstance(value, dict) else None

    def _call(self, operation: str, **arguments: Any) -> bytes:
        """Return the answer's body, within the time limit of the call.

        Reading the body may take as long as the rest of the call.
        """

        def work() -> bytes:
            with self._connecting:  # making a client takes longer than writing a dozen objects
                if self._client is None:
                    self._client = self._connect()
            answer = getattr(self._client, operation)(Bucket=self._bucket, **arguments)
            body: bytes = answer["Body"].read() if operation == "get_object" else b""
            return body

        return call(self._clock, operation, work)


class SecretStore:
    """A reader of Secrets Manager, for the one secret that an instance's role may read."""

    def __init__(self, connect: Callable[[], Any]) -> None:
        self._connect = connect

    def get(self, secret_id: str) -> str:
        """Return the secret's text. Raises CloudError.

        The text is never part of a message.
        """
        try:
            answer = self._connect().get_secret_value(SecretId=secret_id)
        except Exception as error:
            raise translate(error) from error
        return str(answer["SecretString"])
