"""Stand-ins for what a test is not about, by name."""

from tests.fakes.training import json_codec, part, ranks

__all__ = ["json_codec", "part", "ranks"]
