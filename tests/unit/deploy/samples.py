"""Configurations, and fakes with state for the services that deploy calls."""

from __future__ import annotations

import io
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import SimpleNamespace

from botocore.exceptions import ClientError

from toolkit.config import load
from toolkit.deploy.stack import TemplateFacts

ROOT = Path(__file__).parents[3]
ACCOUNT = "123456789012"
FACTS = TemplateFacts(
    ACCOUNT, "ami-0aaaaaaaaaaaaaaaa", "ami-0cccccccccccccccc", "/dev/xvda", "0.1008"
)


@cache
def example(name="local"):
    """Return one of examples/, frozen so that tests can share it."""
    return load(ROOT / "examples" / f"{name}.yaml")


def refusal(code, message="no", operation="Operation"):
    return ClientError({"Error": {"Code": code, "Message": message}}, operation)


class Clock:
    """A clock that moves with `sleep` and runs actions planned for later."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now
        self.later: list[tuple[float, object]] = []

    def __call__(self) -> float:
        return self.now

    def at(self, seconds, action):
        self.later.append((self.now + seconds, action))

    def sleep(self, seconds):
        self.now += seconds
        due = [entry for entry in self.later if entry[0] <= self.now]
        self.later = [entry for entry in self.later if entry[0] > self.now]
        for _, action in due:
            action()


class Report:
    """A reporter that keeps every line and update."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.updates: list[str] = []

    def line(self, text):
        self.lines.append(text)

    @contextmanager
    def phase(self, title):
        self.lines.append(title)
        yield self

    def update(self, detail, *, done=0, total=0):
        self.updates.append(detail)

    def result(self, text):
        self.lines.append(text)


class FakeS3:
    """Buckets of S3, as dicts."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str], bytes] = {}
        self.writes: list[str] = []

    def get_object(self, *, Bucket, Key):  # noqa: N803  # boto3's names
        try:
            return {"Body": io.BytesIO(self.objects[Bucket, Key])}
        except KeyError:
            raise refusal("NoSuchKey") from None

    def put_object(self, *, Bucket, Key, Body):  # noqa: N803  # boto3's names
        self.writes.append(Key)
        self.objects[Bucket, Key] = Body

    def delete_object(self, *, Bucket, Key):  # noqa: N803  # boto3's names
        self.objects.pop((Bucket, Key), None)


class FakeClients:
    """Clients of AWS that return fakes."""

    account = ACCOUNT

    def __init__(self, **services) -> None:
        self.services = SimpleNamespace(**services)

    def client(self, service):
        return getattr(self.services, service)


class FakeStack:
    """A stack whose head is this instance; empty for a stack without one."""

    def __init__(self, head="i-1") -> None:
        self.head = head

    def describe_stack_resource(self, **_):
        if not self.head:
            raise refusal("ValidationError", "Resource Head does not exist for stack toolkit-demo")
        return {"StackResourceDetail": {"PhysicalResourceId": self.head}}
