"""Replaces moto's methods by ours, and puts them back.

moto keeps its tables in module-level objects and calls itself across services. For
example, CloudFormation runs instances on the EC2 backend, not over HTTP. Therefore the
method is the only place where behaviour can be corrected for every caller.
"""

from __future__ import annotations

from typing import Any

_MISSING = object()


class Patches:
    """The replacements one local cloud has made; `undo` takes all of them back."""

    def __init__(self) -> None:
        """Begin with nothing replaced."""
        self._originals: list[tuple[Any, str, Any]] = []

    def replace(self, target: Any, name: str, value: Any) -> Any:
        """Put `value` in place of `target.name`; return the original, or None."""
        # vars() and not getattr(): a classmethod must be put back as the object it was.
        original = vars(target).get(name, _MISSING)
        self._originals.append((target, name, original))
        setattr(target, name, value)
        return None if original is _MISSING else original

    def undo(self) -> None:
        """Put every original back, the latest replacement first."""
        while self._originals:
            target, name, original = self._originals.pop()
            if original is _MISSING:
                delattr(target, name)
            else:
                setattr(target, name, original)
