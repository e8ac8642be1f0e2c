"""The differences between two values of a resource, one line per property."""

from __future__ import annotations

from typing import Any

MAX_SHOWN = 70


def differences(before: Any, after: Any) -> tuple[str, ...]:
    """Return lines such as `InstanceType: m7i.large → m7i.xlarge`.

    Equal values give none.
    """
    old, new = _flat(before), _flat(after)
    lines = []
    for path in sorted(old.keys() | new.keys()):
        old_value, new_value = old.get(path), new.get(path)
        if old_value != new_value:
            name = path.removeprefix("Properties.")
            lines.append(f"{name}: {_shown(old_value)} → {_shown(new_value)}")
    return tuple(lines)


def _flat(value: Any, path: str = "") -> dict[str, str]:
    if isinstance(value, dict):
        pairs = [(f"{path}.{key}" if path else str(key), item) for key, item in value.items()]
    elif isinstance(value, list):
        pairs = [(f"{path}[{at}]", item) for at, item in enumerate(value)]
    else:
        return {path: str(getattr(value, "value", value))}
    flat: dict[str, str] = {}
    for name, item in pairs:
        flat.update(_flat(item, name))
    return flat


def _shown(value: str | None) -> str:
    if value is None:
        return "(none)"
    if "\n" in value:
        return f"({len(value.splitlines())} lines)"
    return value if len(value) <= MAX_SHOWN else f"{value[:MAX_SHOWN]}…"
