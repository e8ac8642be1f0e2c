"""The commands of a reader: those of people's commands that change nothing on the head. Pure.

Both sides have the list. `toolkit` sends such a command by the SSM document for readers, and
`slurm-read` on the head refuses every other. So a person may have the right to this document alone.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from slurmplugins.errors import BadName
from slurmplugins.model import json_input
from slurmplugins.slurm import sacct

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class _Form:
    """A command: its first words, and a pattern for each of the others."""

    words: tuple[str, ...]
    others: str = r"(?!)"  # fits nothing


_AS_SLURM: Final = ("/usr/sbin/runuser", "-u", "slurm", "--")
_PYTHON: Final = (
    "/usr/bin/env", "PYTHONPATH=/opt/slurm-toolkit/lib", "/usr/bin/python3", "-P", "-m",
)  # fmt: skip
NODES: Final = (*_AS_SLURM, *_PYTHON, "slurmplugins.head_nodes")
SHARES: Final = (
    *("sshare", "--noheader", "--parsable2", "--all"),
    "--format=Account,User,NormShares,RawUsage",
)
LONGEST_JSON: Final = 16_000
"""Characters: a command of SSM has 64 KiB for all of its parameters, encoded twice."""
_SACCT: Final = (*sacct.ENVIRONMENT, "sacct")
_FORMS: Final = (
    _Form(("systemctl", "is-active"), r"[a-z][a-z0-9.-]*"),
    _Form(("scontrol", "ping")),
    _Form(("scontrol", "show", "nodes", "--json")),
    _Form(("sacctmgr", "-n", "-P", "show"), r"[a-z]+|(cluster|format)=[A-Za-z0-9_,-]+"),
    _Form(sacct.SHOW_INSTANCES, r"(clusters|start|format)=[A-Za-z0-9_,:T-]+"),
    _Form((*_SACCT, "--helpformat")),
    _Form(
        _SACCT,
        r"--(allusers|duplicates|allocations|parsable2|noheader|noconvert)"
        r"|--(delimiter|starttime|endtime|format)=[\x1fA-Za-z0-9_,:T-]+",
    ),
    _Form(SHARES),
    _Form(NODES),
    _Form((*_AS_SLURM, *_PYTHON, "slurmplugins.head_report"), r"[A-Za-z0-9][A-Za-z0-9_.\[\],-]*"),
    _Form((*_AS_SLURM, "/opt/slurm-toolkit/bin/slurm-reconcile", "--plan")),
    _Form((*_AS_SLURM, "/opt/slurm-toolkit/bin/slurm-govern", "--plan")),
    _Form(
        (*_AS_SLURM, "/opt/slurm-toolkit/bin/slurm-budget", "--plan"),
        rf"\{{[ -~]{{1,{LONGEST_JSON}}}\}}",  # budgets that the head does not have yet
    ),
)


def is_read(argv: Sequence[str]) -> bool:
    """Return whether a reader may run this command."""
    return any(
        tuple(argv[: len(form.words)]) == form.words
        and all(re.fullmatch(form.others, word) for word in argv[len(form.words) :])
        for form in _FORMS
    )


def encode(argv: Sequence[str]) -> str:
    """Return a command as one word that means nothing to a shell."""
    return base64.urlsafe_b64encode(json.dumps(list(argv)).encode()).decode()


def decode(word: str) -> tuple[str, ...]:
    """Return the command in a word of `encode`.

    Raises BadName, also for a command that is no read.
    """
    try:
        argv = json_input.loads(base64.b64decode(word, altchars=b"-_", validate=True).decode())
    except (ValueError, binascii.Error) as error:
        raise BadName(f"not an encoded command: {error}") from error
    if not (isinstance(argv, list) and all(isinstance(item, str) for item in argv)):
        raise BadName("not an encoded command: no list of words")
    if not is_read(argv):
        raise BadName(f"not a reader's command: {' '.join(argv)[:200]!r}")
    return tuple(argv)
