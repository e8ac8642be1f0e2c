"""Settings that machines inherit: apt's mirror, proxies and trust, pip's indexes, names.

Everything is read from one `root` (the host's `/`), so that a test can show another host.
Secrets (apt's auth.conf) are kept apart from the rest: they go to builders only and never
into an image.
"""

from __future__ import annotations

import configparser
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from toolkit.local.machines.host_commands import Host

DEBIAN_MIRROR = "http://deb.debian.org/debian"
SECURITY_MIRROR = "http://deb.debian.org/debian-security"
CA_BUNDLE = Path("/etc/ssl/certs/ca-certificates.crt")
_LOCAL_CAS = Path("usr/local/share/ca-certificates")
# Transport, trust and patience; not how the host stores its indexes, and no commands to run.
_APT_KEPT = re.compile(
    r"Acquire::(https?::(?!Proxy-Auto-Detect)|Retries|Check-|ForceIPv)", re.IGNORECASE
)
_APT_LINE = re.compile(r'(?P<key>[A-Za-z0-9:._/-]+) "(?P<value>[^"\n]*)";')
_ONE_LINE = re.compile(r"deb\s+(\[[^]]*\]\s+)?(?P<uri>\S+)\s+(?P<suite>\S+)\s+(?P<components>.+)")
_PROXIES = ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
_PIP_KEPT = ("index-url", "extra-index-url", "find-links", "no-index", "trusted-host", "timeout")


@dataclass(frozen=True, slots=True)
class HostSettings:
    """The host's configuration, as far as it concerns machines."""

    mirror: str = DEBIAN_MIRROR
    security_mirror: str = SECURITY_MIRROR
    apt_options: tuple[tuple[str, str], ...] = ()
    apt_auth: bytes = b""
    local_cas: Mapping[str, bytes] = field(default_factory=dict)
    ca_bundle: bytes = b""
    pip: tuple[tuple[str, str], ...] = ()
    pip_directories: tuple[Path, ...] = ()
    proxies: tuple[tuple[str, str], ...] = ()
    resolv_conf: bytes = b""


def read(root: Path, environment: Mapping[str, str], apt_dump: str, home: Path) -> HostSettings:
    """Collect the host's settings.

    `apt_dump` is the output of `apt-config dump`, or empty.
    """
    mirror, security = mirrors(root)
    pip = pip_settings(root, environment, home)
    return HostSettings(
        mirror=mirror,
        security_mirror=security,
        apt_options=apt_options(apt_dump),
        apt_auth=_apt_auth(root),
        local_cas=_local_cas(root),
        ca_bundle=_read_file(root / CA_BUNDLE.relative_to("/")),
        pip=pip,
        pip_directories=pip_directories(pip),
        proxies=tuple((name, environment[name]) for name in _PROXIES if environment.get(name)),
        resolv_conf=_read_file(root / "etc/resolv.conf"),
    )


def read_this_host(host: Host) -> HostSettings:
    """Return this host's configuration."""
    dump = host.run(["apt-config", "dump"]).stdout.decode(errors="replace")
    return read(Path("/"), os.environ, dump, Path.home())


def mirrors(root: Path) -> tuple[str, str]:
    """Return the Debian host's (main, security) mirrors, else Debian's own."""
    os_release = dict(
        line.split("=", 1)
        for line in _read_file(root / "etc/os-release").decode(errors="replace").splitlines()
        if "=" in line
    )
    codename = os_release.get("VERSION_CODENAME", "").strip('"')
    main, security = DEBIAN_MIRROR, SECURITY_MIRROR
    if os_release.get("ID", "").strip('"') != "debian" or not codename:
        return main, security
    for uri, suites, components in _sources(root):
        if "main" not in components or not uri.startswith(("http://", "https://")):
            continue
        if codename in suites:
            main = uri.rstrip("/")
        elif f"{codename}-security" in suites:
            security = uri.rstrip("/")
    return main, security


def apt_options(dump: str) -> tuple[tuple[str, str], ...]:
    """Return the apt options that a machine on this network needs.

    They are (key, value) pairs of `apt-config dump`.
    """
    options = []
    for line in dump.splitlines():
        match = _APT_LINE.fullmatch(line.strip())
        if match and match["value"] and _APT_KEPT.match(match["key"]):
            options.append((match["key"], match["value"]))
    return tuple(options)


def pip_settings(
    root: Path, environment: Mapping[str, str], home: Path
) -> tuple[tuple[str, str], ...]:
    """Return pip's [global] settings on package sources; later files win."""
    files = [root / "etc/pip.conf", home / ".pip/pip.conf", home / ".config/pip/pip.conf"]
    if environment.get("PIP_CONFIG_FILE"):
        files.append(Path(environment["PIP_CONFIG_FILE"]))
    pip_options: dict[str, str] = {}
    for path in files:
        parser = configparser.RawConfigParser()
        try:
            parser.read_string(_read_file(path).decode(errors="replace"))
        except configparser.Error:  # pip would refuse it too; not ours to repair
            continue
        for section in ("global", "install"):
            if parser.has_section(section):
                pip_options.update(
                    (key, " ".join(value.split()))
                    for key, value in parser.items(section)
                    if key in _PIP_KEPT
                )
    for key in _PIP_KEPT:
        value = environment.get("PIP_" + key.upper().replace("-", "_"))
        if value:
            pip_options[key] = value
    return tuple(sorted(pip_options.items()))


def pip_directories(settings: Iterable[tuple[str, str]]) -> tuple[Path, ...]:
    """Return the host directories in pip's settings; builders must see them."""
    directories: set[Path] = set()
    for key, value in settings:
        if key not in {"index-url", "extra-index-url", "find-links"}:
            continue
        for word in value.split():
            path = Path(unquote(urlsplit(word).path) if word.startswith("file://") else word)
            # An index names its files beside itself (../../files/…): show what holds both.
            if key.endswith("index-url") and path.name == "simple":
                path = path.parent
            if path.is_absolute() and path.is_dir() and path != Path("/"):
                directories.add(path)
    return tuple(sorted(path for path in directories if not directories.intersection(path.parents)))


def _sources(root: Path) -> list[tuple[str, list[str], list[str]]]:
    sources: list[tuple[str, list[str], list[str]]] = []
    directory = root / "etc/apt/sources.list.d"
    for path in (root / "etc/apt/sources.list", *sorted(directory.glob("*.list"))):
        for line in _read_file(path).decode(errors="replace").splitlines():
            match = _ONE_LINE.match(line.strip())
            if match:
                sources.append((match["uri"], [match["suite"]], match["components"].split()))
    for path in sorted(directory.glob("*.sources")):
        for stanza in re.split(r"\n\s*\n", _read_file(path).decode(errors="replace")):
            fields = _stanza(stanza)
            if "deb" in fields.get("types", "").split() and fields.get("enabled", "yes") != "no":
                sources.extend(
                    (uri, fields.get("suites", "").split(), fields.get("components", "").split())
                    for uri in fields.get("uris", "").split()
                )
    return sources


def _stanza(text: str) -> dict[str, str]:
    fields: dict[str, str] = {}
    key = ""
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        if line[:1].isspace() and key:
            fields[key] += " " + line.strip()
        elif ":" in line:
            key, _, value = line.partition(":")
            key = key.strip().lower()
            fields[key] = value.strip()
    return fields


def _apt_auth(root: Path) -> bytes:
    directory = root / "etc/apt/auth.conf.d"
    parts = [_read_file(root / "etc/apt/auth.conf")]
    parts.extend(_read_file(path) for path in sorted(directory.glob("*.conf")))
    return b"\n".join(part for part in parts if part)


def _local_cas(root: Path) -> dict[str, bytes]:
    return {path.name: _read_file(path) for path in sorted((root / _LOCAL_CAS).rglob("*.crt"))}


def _read_file(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
