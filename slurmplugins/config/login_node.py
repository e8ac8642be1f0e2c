"""node.json of a login node: that of a compute node, with a name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from slurmplugins.config import node, paths
from slurmplugins.errors import ConfigError
from slurmplugins.model import json_input

if TYPE_CHECKING:
    from pathlib import Path

    from slurmplugins.config.node import NodeConfig


@dataclass(frozen=True, slots=True)
class LoginNodeConfig:
    """The contents of a login node's node.json."""

    node: NodeConfig
    name: str
    """Its host name, such as login-1."""


def load(path: Path = paths.NODE) -> LoginNodeConfig:
    """Read node.json. Raises ConfigError."""
    settings = node.load(path)
    data = json_input.loads(path.read_text(encoding="utf-8"))
    name = data.get("login_node")
    if not isinstance(name, str) or not name:
        raise ConfigError((f"{path}: login_node: expected a name, found {name!r}",))
    return LoginNodeConfig(settings, name)
