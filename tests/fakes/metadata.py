"""An instance metadata service made of a dictionary."""

from __future__ import annotations

from slurmplugins.errors import MetadataError


class FakeMetadata:
    def __init__(self, values: dict[str, str] | None = None) -> None:
        self.values = dict(values or {})
        self.broken = False

    def get(self, path: str) -> str | None:
        if self.broken:
            raise MetadataError("no answer")
        return self.values.get(path)
