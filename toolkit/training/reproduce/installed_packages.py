"""What was installed: one line a package, and its hash.

`replay` runs this file in the environment that it asks about, whose lines it prints.
Two runs with one hash had the same packages.
"""

import hashlib
import platform
import sys
from functools import cache
from importlib import metadata


@cache
def lines() -> tuple[str, ...]:
    """`name==version` of every installed package, sorted, after a line for Python itself."""
    found = set()
    for distribution in metadata.distributions():
        name = distribution.metadata["Name"]
        if name:  # a folder that an uninstall left half is no package
            found.add(f"{name.lower().replace('_', '-')}=={distribution.version}")
    return (
        f"# python {platform.python_version()} {sys.platform} {platform.machine()}",
        *sorted(found),
    )


def text() -> str:
    """The lines as a file, which pip could install from."""
    return "\n".join(lines()) + "\n"


def digest(content: str) -> str:
    """`sha256:…` of such a file."""
    return f"sha256:{hashlib.sha256(content.encode()).hexdigest()}"


if __name__ == "__main__":
    sys.stdout.write(text())
