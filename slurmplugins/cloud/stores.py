"""Where the runtime keeps and reads things in AWS: the ledger's bucket, the cluster's secret."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, Any

from slurmplugins.cloud.client import ask, translate
from slurmplugins.errors import CloudError, NotFound
from slurmplugins.model import json_input
from slurmplugins.system.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


class S3Store:
    """`cloud.base.ObjectStore` on a boto3 S3 client, for one bucket."""

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

    def _put(self, key: str, value: Mapping[str, object], **more: str) -> None:
        body = json.dumps(value, separators=(",", ":")).encode()
        self._call("put_object", Key=key, Body=body, ContentType="application/json", **more)

    def put_text(self, key: str, text: str) -> None:
        self._call("put_object", Key=key, Body=text.encode(), ContentType="text/plain")

    def get(self, key: str) -> dict[str, object] | None:
        try:
            value = json_input.loads(self._call("get_object", Key=key))
        except NotFound:
            return None
        except ValueError:
            return None  # damaged: as good as none, and about to be replaced
        return value if isinstance(value, dict) else None

    def _call(self, operation: str, **arguments: Any) -> bytes:
        """What the answer holds, if anything: a body may be as slow as the rest."""

        def work() -> bytes:
            with self._connecting:  # a client takes longer to make than a dozen objects to write
                if self._client is None:
                    self._client = self._connect()
            answer = getattr(self._client, operation)(Bucket=self._bucket, **arguments)
            body: bytes = answer["Body"].read() if operation == "get_object" else b""
            return body

        return ask(self._clock, operation, work)


class SecretStore:
    """Secrets Manager, for the one secret a machine's role may read."""

    def __init__(self, connect: Callable[[], Any]) -> None:
        self._connect = connect

    def get(self, secret_id: str) -> str:
        """The secret's text. Raises CloudError; the text is never part of a message."""
        try:
            answer = self._connect().get_secret_value(SecretId=secret_id)
        except Exception as error:
            raise translate(error) from error
        return str(answer["SecretString"])
