"""A site that answers as one of the captured ones did."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from toolkit.join.errors import SiteCommandFailed

if TYPE_CHECKING:
    from collections.abc import Sequence

HERE = Path(__file__).parent
VERSIONS = ("24.11", "25.11", "26.05")


class RecordedSite:
    """A runner with the answers that capture.py kept."""

    def __init__(self, version: str, site: str) -> None:
        text = (HERE / version / f"{site}.json").read_text(encoding="utf-8")
        self.calls = {tuple(call["argv"]): call for call in json.loads(text)}

    def run(self, argv: Sequence[str], *, timeout: float = 60, stdin: bytes = b"") -> str:
        """Return the kept answer. Raises SiteCommandFailed as the site's runner does."""
        assert timeout > 0
        assert not stdin, "no recorded call has standard input"
        call = self.calls[tuple(argv)]
        if call["exit"]:
            raise SiteCommandFailed(
                f"{argv[0]} failed: {call['stderr'].strip()}",
                returncode=call["exit"],
                stdout=call["stdout"],
                stderr=call["stderr"],
            )
        return call["stdout"]
