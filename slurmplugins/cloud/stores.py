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
    """An implementation of the stores in `cloud.port` on a botocore S3 client, for one bucket."""

    def __init__(self, bucket: str, connect: Callable[[], Any]) -> None:
        self._bucket = bucket
        self._connect = connect
        self._client: Any = None
        self._connecting = threading.Lock()
        self._clock = SystemClock()

    def create(self, key: str, value: Mapping[str, object]) -> bool:
        return self._add(key, _json(value), "application/json")

    def add(self, key: str, body: bytes) -> bool:
        return self._add(key, body, "application/gzip")

    def _add(self, key: str, body: bytes, content_type: str) -> bool:
        try:
            self._call("put_object", Key=key, Body=body, ContentType=content_type, IfNoneMatch="*")
        except CloudError as error:
            if error.code == "PreconditionFailed":
                return False
            raise
        return True

    def put(self, key: str, value: Mapping[str, object]) -> None:
        self._call("put_object", Key=key, Body=_json(value), ContentType="application/json")

    def put_text(self, key: str, text: str) -> None:
        self._call("put_object", Key=key, Body=text.encode(), ContentType="text/plain")

    def get(self, key: str) -> dict[str, object] | None:
        try:
            value = json_input.loads(self._call("get_object", Key=key)["Body"])
        except NotFound:
            return None
        except ValueError:
            return None  # damaged: treated as absent, and about to be replaced
        return value if isinstance(value, dict) else None

    def changed_since(self, prefix: str, moment: float) -> list[str]:
        """Return the keys of objects written since then. Raises CloudError."""
        keys: list[str] = []
        more: dict[str, str] = {}
        while True:
            page = self._call("list_objects_v2", Prefix=prefix, **more)
            keys += [
                item["Key"]
                for item in page.get("Contents", ())
                if item["LastModified"].timestamp() >= moment
            ]
            if not page.get("IsTruncated"):
                return keys
            more = {"ContinuationToken": page["NextContinuationToken"]}

    def _connected(self) -> Any:
        with self._connecting:  # making a client takes longer than writing a dozen objects
            if self._client is None:
                self._client = self._connect()
        return self._client

    def _call(self, operation: str, **arguments: Any) -> dict[str, Any]:
        """Return the answer, with a body as bytes.

        The time limit of the call holds for both. Reading the body may take as long as the rest of
        the call.
        """

        def work() -> dict[str, Any]:
            answer = getattr(self._connected(), operation)(Bucket=self._bucket, **arguments)
            return {**answer, "Body": answer["Body"].read()} if "Body" in answer else answer

        return call(self._clock, operation, work)


def _json(value: Mapping[str, object]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


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
