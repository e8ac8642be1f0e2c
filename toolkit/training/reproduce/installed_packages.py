"""List the installed packages, one line each, and hash the list.

`replay` runs this file with the Python whose packages it needs, and reads the printed lines. Two
runs with one hash had the same packages.
"""

import hashlib
import platform
import sys
from functools import cache
from importlib import metadata


@cache
def lines() -> tuple[str, ...]:
    """Return a line for Python, then `name==version` of every installed package.

    The packages are sorted.
    """
    packages = set()
    for distribution in metadata.distributions():
        name = distribution.metadata["Name"]
        if name:  # a folder that an uninstall left half is no package
            packages.add(f"{name.lower().replace('_', '-')}=={distribution.version}")
    return (
        f"# python {platform.python_version()} {sys.platform} {platform.machine()}",
        *sorted(packages),
    )


def text() -> str:
    """Return the lines as a file that pip could install from."""
    return "\n".join(lines()) + "\n"


def digest(content: str) -> str:
    """Return `sha256:…` of such a file."""
    return f"sha256:{hashlib.sha256(content.encode()).hexdigest()}"


if __name__ == "__main__":
    sys.stdout.write(text())
