"""The files of a period: a page and a mail for each account, and the accounting journal. Pure."""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Final

from toolkit.statements import accounting_journal, render

if TYPE_CHECKING:
    from toolkit.statements.model import PeriodStatements
    from toolkit.statements.settings import StatementSettings

ACCOUNTING_JOURNAL: Final = "journal.csv"
_HARMLESS: Final = re.compile(r"[a-zA-Z0-9_][a-zA-Z0-9_-]{0,63}")


def documents(made: PeriodStatements, settings: StatementSettings) -> dict[str, bytes]:
    """Return the content of each file, by its name."""
    found = {ACCOUNTING_JOURNAL: accounting_journal.as_csv(made, settings).encode()}
    for statement in made.statements:
        name = file_name(statement.account.name)
        found[f"{name}.html"] = render.html(statement).encode("utf-8", errors="replace")
        found[f"{name}.eml"] = render.mail(statement)
    return found


def file_name(account: str) -> str:
    """Return the name of an account's files, without an ending.

    Slurm's own accounts may have any name, and the name `journal` is taken.
    """
    if _HARMLESS.fullmatch(account) and account != "journal":
        return account
    digest = hashlib.sha256(account.encode("utf-8", errors="replace")).hexdigest()[:8]
    return f"account-{digest}"
