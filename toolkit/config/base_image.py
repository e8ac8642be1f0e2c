"""The base image of each profile: its system, and the Slurm that comes with it.

On AWS the default is Canonical's Ubuntu 24.04: there is no Lustre client for Debian,
and no Slurm with auth/slurm in older Ubuntus. With `profile: local` it is Debian's own
Debian 13. With `slurm.packages: locked` its Slurm does not count.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from toolkit.config.model import BaseImage, Slurm
from toolkit.config.raw import mapping

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from toolkit.config.raw import Finding

DEBIAN_OWNER = "136693071363"
"""The AWS account that publishes Debian's images."""

# The model's own defaults are for AWS.
LOCAL_DEFAULTS = {
    "slurm": {"version": "24.11"},
    "images": {"base": {"owner": DEBIAN_OWNER, "name": "debian-13-amd64-*"}},
}
# Debian's and Canonical's names of their images: debian-13-amd64-…, …/ubuntu-noble-24.04-amd64-….
_SYSTEM_IN_NAME: Final = re.compile(r"(?:^|/)(debian|ubuntu)-(?:[a-z]+-)?(\d+(?:\.\d+)?)-")


def with_local_defaults(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Return the file; with `profile: local`, add the local cloud's base image."""
    if raw.get("profile") != "local":
        return dict(raw)
    return _with_defaults(raw, LOCAL_DEFAULTS)


def _with_defaults(values: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    result = dict(values)
    for key, default in defaults.items():
        value = values.get(key, default)
        both_mappings = isinstance(value, dict) and isinstance(default, dict)
        result[key] = _with_defaults(value, default) if both_mappings else value
    return result


def base_system(name: str, system: str | None) -> str:
    """Return a base image's system, such as debian-13.

    The given one counts, then its name's. Without either it is "".
    """
    match = _SYSTEM_IN_NAME.search(name)
    return system or (f"{match[1]}-{match[2]}" if match is not None else "")


def base_checks(raw: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield an unusable base image and a Slurm version it lacks."""
    ubuntu = BaseImage()
    base = mapping(mapping(raw, "images"), "base")
    owner, name = base.get("owner", ubuntu.owner), base.get("name", ubuntu.name)
    if raw.get("profile", "aws") == "aws" and owner == DEBIAN_OWNER:
        default = f'{{owner: "{ubuntu.owner}", name: "{ubuntu.name}"}}'
        yield (
            ("images", "base"),
            f"expected a system with a Lustre client from AWS, not Debian; default: {default}",
        )
    slurm = mapping(raw, "slurm")
    if slurm.get("packages") == "locked":
        if not base_system(str(name), base.get("system")):
            yield (
                ("images", "base"),
                "expected system, such as ubuntu-24.04: locked packages are for one system",
            )
        return
    version = slurm.get("version", Slurm().version)
    if (owner, name) == (ubuntu.owner, ubuntu.name) and version != Slurm().version:
        yield (
            ("slurm", "version"),
            (
                f'expected "{Slurm().version}", which the base image has, found {version!r};'
                " other versions need slurm.packages: locked"
            ),
        )
