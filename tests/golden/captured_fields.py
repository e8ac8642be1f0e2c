"""The fields of captured calls of sacct."""

from __future__ import annotations

from toolkit.accounting import sacct


def asked(help_text: str) -> tuple[str, ...]:
    """Return the fields of the captured call, given `sacct --helpformat`.

    The captures are older than the project in reports, so they have no WCKey.
    """
    return tuple(name for name in sacct.fields(help_text) if name != "WCKey")
