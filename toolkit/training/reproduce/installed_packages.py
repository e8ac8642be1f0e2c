"""List the installed packages, one line each, and hash the list.

`replay` runs this file with the Python whose packages it needs, and reads the printed lines. Two
runs with one hash had the same packages.
"""

import hashlib
import platform
import re
import sys
from functools import cache
from importlib import metadata

_NAME = re.compile(r"^Name:(.*)$", re.MULTILINE | re.IGNORECASE)
_VERSION = re.compile(r"^Version:(.*)$", re.MULTILINE | re.IGNORECASE)


@cache
def lines() -> tuple[str, ...]:
    """Return a line for Python, then `name==version` of every installed package.

    The packages are sorted.
    """
    packages = set()
    for distribution in metadata.distributions():
        headers = _headers(distribution)
        name, version = _NAME.search(headers), _VERSION.search(headers)
        if name and version:  # a folder that an uninstall left half is no package
            packages.add(f"{name[1].strip().lower().replace('_', '-')}=={version[1].strip()}")
    return (
        f"# python {platform.python_version()} {sys.platform} {platform.machine()}",
        *sorted(packages),
    )


def _headers(distribution: metadata.Distribution) -> str:
    """Return the headers of a package's metadata.

    The description follows, which importlib parses as well: half a second for 250 packages.
    """
    files = map(distribution.read_text, ("METADATA", "PKG-INFO", ""))
    return next(filter(None, files), "").partition("\n\n")[0]


def text() -> str:
    """Return the lines as a file that pip could install from."""
    return "\n".join(lines()) + "\n"


def digest(content: str) -> str:
    """Return `sha256:…` of such a file."""
    return f"sha256:{hashlib.sha256(content.encode()).hexdigest()}"


if __name__ == "__main__":
    sys.stdout.write(text())
