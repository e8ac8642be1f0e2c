"""Changes of the cluster.yaml that all tests share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ruamel.yaml import YAML

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def edit(config: Path, change: Callable[[dict], None]) -> None:
    """Change cluster.yaml in one step, because the other lane reads it too."""
    yaml = YAML(typ="rt")
    settings = yaml.load(config.read_text())
    change(settings)
    new = config.with_suffix(".new.yaml")
    with new.open("w") as file:
        yaml.dump(settings, file)
    new.replace(config)


def add_zoe(settings: dict, state: Path) -> None:
    """Make zoe a user, with the key in the state directory."""
    remove_zoe(settings)
    key = (state / "zoe.pub").read_text().strip()
    zoe = {"name": "zoe", "uid": 2077, "account": "vision", "ssh_keys": [key]}
    settings["users"].append(zoe)


def remove_zoe(settings: dict) -> None:
    settings["users"] = [user for user in settings["users"] if user["name"] != "zoe"]
