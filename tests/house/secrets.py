"""Look for keys and passwords by their form: python -m tests.house.secrets FILE...

detect-secrets asks each of its plugins about each line, in Python: all of git takes it 40 s. Its
plugins have patterns. So it gets the files in which one of these patterns occurs at all.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from detect_secrets.core.scan import _get_lines_from_file, get_plugins
from detect_secrets.plugins.base import RegexBasedDetector
from detect_secrets.settings import default_settings

if TYPE_CHECKING:
    from collections.abc import Iterator

# What only looks random is left out, as hashes do.
OFF: Final = ("Base64HighEntropyString", "HexHighEntropyString", "KeywordDetector")
# The key of the local cloud's owner, and passwords that tests make up.
KNOWN: Final = r"^(AKIALOCALCLOUD000000|it%27s|secret|hid)$"


def patterns() -> Iterator[re.Pattern[str]]:
    """Yield every pattern of the plugins, for a text of several lines."""
    with default_settings():
        plugins = [plugin for plugin in get_plugins() if type(plugin).__name__ not in OFF]
    for plugin in plugins:
        if not isinstance(plugin, RegexBasedDetector):
            raise SystemExit(f"{plugin} has no patterns: name it in OFF, or scan all files")
        for pattern in plugin.denylist:
            yield re.compile(pattern.pattern, pattern.flags | re.MULTILINE)


def texts(file: str) -> Iterator[str]:
    """Yield what detect-secrets reads: lines, then settings if there are any."""
    for lines in _get_lines_from_file(file):
        yield "\n".join(line.rstrip() for line in lines)


def candidates(files: list[str]) -> Iterator[str]:
    """Yield the files in which a secret can be."""
    wanted = list(patterns())
    for file in files:
        if any(pattern.search(text) for text in texts(file) for pattern in wanted):
            yield file


def main() -> int:
    """Return the exit code of detect-secrets."""
    # A file that git knows may be deleted here.
    found = list(candidates([file for file in sys.argv[1:] if Path(file).is_file()]))
    off = [word for name in OFF for word in ("--disable-plugin", name)]
    hook = str(Path(sys.executable).with_name("detect-secrets-hook"))
    argv = [hook, "--no-verify", "--exclude-secrets", KNOWN, *off, *found]
    return subprocess.run(argv, check=False).returncode if found else 0


if __name__ == "__main__":
    sys.exit(main())
