"""The files that a machine gets from its host, a layer between image and disk.

They are not on the machine's own disk, so an image made of that disk does not contain
them. It has neither names and addresses, nor a builder's proxies and passwords.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from toolkit.local.machines.driver import MachineSpec
    from toolkit.local.machines.host_settings import HostSettings

_NEVER_PROXIED = ("localhost", "127.0.0.1", "169.254.169.254")
_CA_BUNDLE = "/etc/ssl/certs/ca-certificates.crt"


@dataclass(frozen=True, slots=True)
class SeedFile:
    """A file of the seed."""

    content: bytes
    mode: int = 0o644


def environment(spec: MachineSpec, host: HostSettings) -> dict[str, str]:
    """Return the environment of the machine's services and commands."""
    variables: dict[str, str] = {}
    if spec.host_network and host.proxies:
        variables.update(host.proxies)
        for name in ("no_proxy", "NO_PROXY"):
            words = [word for word in variables.get(name, "").split(",") if word]
            variables[name] = ",".join(dict.fromkeys([*words, *_NEVER_PROXIED]))
    variables.update(spec.environment)
    return variables


def files(spec: MachineSpec, host: HostSettings) -> dict[str, SeedFile]:
    """Return the layer's files by path relative to the machine's root."""
    short = spec.hostname.partition(".")[0]
    variables = environment(spec, host)
    files_by_path = {
        "etc/hostname": SeedFile(f"{short}\n".encode()),
        "etc/hosts": SeedFile(_hosts(spec, short)),
        # Empty: a name is refused at once, where a silent nameserver would cost 10 s.
        "etc/resolv.conf": SeedFile(host.resolv_conf if spec.host_network else b""),
        "etc/environment": SeedFile(_etc_environment(variables)),
    }
    if variables:
        files_by_path["etc/systemd/system.conf.d/50-toolkit.conf"] = SeedFile(_manager(variables))
    if spec.host_network:
        files_by_path |= _builder_files(spec, host)
    return files_by_path


def write(layer: Path, content: Mapping[str, SeedFile]) -> None:
    """Write the layer afresh, with the directories of a root tree."""
    shutil.rmtree(layer, ignore_errors=True)
    layer.mkdir()
    layer.chmod(0o755)
    for name, file in content.items():
        path = layer / name
        for parent in reversed(path.relative_to(layer).parents[:-1]):
            (layer / parent).mkdir(exist_ok=True)
            (layer / parent).chmod(0o755)
        path.touch(mode=0o600)
        path.write_bytes(file.content)
        path.chmod(file.mode)


def apt_conf(options: Iterable[tuple[str, str]]) -> bytes:
    """Return an apt.conf of (key, value) pairs as `apt-config dump` printed them."""
    return "".join(f'{key} "{value}";\n' for key, value in options).encode()


def _builder_files(spec: MachineSpec, host: HostSettings) -> dict[str, SeedFile]:
    files_by_path = {
        "etc/cloud/cloud.cfg.d/95-toolkit-builder.cfg": SeedFile(
            b"datasource_list: [NoCloud, None]\n"
        ),
        "var/lib/cloud/seed/nocloud/meta-data": SeedFile(
            f"instance-id: {spec.instance_id}\nlocal-hostname: {spec.hostname}\n".encode()
        ),
        "var/lib/cloud/seed/nocloud/user-data": SeedFile(spec.user_data, 0o600),
        "etc/apt/apt.conf.d/90toolkit-host": SeedFile(apt_conf(host.apt_options), 0o600),
        "etc/pip.conf": SeedFile(_pip_conf(host), 0o600),
    }
    if host.apt_auth:
        files_by_path["etc/apt/auth.conf.d/toolkit-host.conf"] = SeedFile(host.apt_auth, 0o600)
    return files_by_path


def _hosts(spec: MachineSpec, short: str) -> bytes:
    names = f"{spec.hostname} {short}" if short != spec.hostname else short
    address = str(spec.address.ip) if spec.address else "127.0.1.1"
    return f"127.0.0.1 localhost\n::1 localhost ip6-localhost\n{address} {names}\n".encode()


def _etc_environment(variables: Mapping[str, str]) -> bytes:
    lines = (f'{name}="{value}"\n' for name, value in sorted(variables.items()))
    return "".join(lines).encode()


def _manager(variables: Mapping[str, str]) -> bytes:
    """Return a drop-in with the environment of systemd's services.

    They have a clean environment otherwise.
    """
    words = []
    for name, value in sorted(variables.items()):
        quoted = value.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
        words.append(f'"{name}={quoted}"')
    return f"[Manager]\nDefaultEnvironment={' '.join(words)}\n".encode()


def _pip_conf(host: HostSettings) -> bytes:
    lines = ["[global]", f"cert = {_CA_BUNDLE}", "disable-pip-version-check = true"]
    lines += [f"{key} = {value}" for key, value in host.pip]
    return ("\n".join(lines) + "\n").encode()
