"""The record of every call that was judged: who, what, on which kind of resource, by which right.

`toolkit local rights` shows it. With the rights of each role it answers two questions: was a call
denied, and which rights did nobody use?
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from toolkit.local.aws.iam.policy import Decision, Request, Right, Statement


@dataclass(frozen=True, slots=True, order=True)
class Judged:
    """Calls that differ in nothing that a policy looks at."""

    role: str
    action: str
    resource: str
    """The kind of resource: an ARN up to its name, or * for none."""
    allowed: bool
    keys: tuple[str, ...]
    """Names of the condition keys that the call had."""
    statement: str
    """The policy and the statement that decided, empty for a missing Allow."""
    note: str = ""


class Record:
    """Counts judged calls, and remembers which rights each role had and used."""

    def __init__(self) -> None:
        """Begin without a call."""
        self._counts: Counter[Judged] = Counter()
        self._rights: dict[str, set[Right]] = {}
        self._used: dict[str, set[Right]] = {}
        self._read: dict[str, tuple[Statement, ...]] = {}

    def know(self, role: str, statements: tuple[Statement, ...]) -> None:
        """Remember a role's rights, also for the time after its deletion."""
        if self._read.get(role) is not statements:
            self._read[role] = statements
            self._rights[role] = {
                right for statement in statements if statement.allows
                for right in statement.rights()
            }  # fmt: skip

    def add(self, role: str, request: Request, decision: Decision, note: str = "") -> None:
        """Count one judged request."""
        right = decision.right
        if right is not None and decision.allowed:
            self._used.setdefault(role, set()).add(right)
        judged = Judged(
            role,
            request.action,
            kind_of(request.resource),
            decision.allowed,
            tuple(sorted(request.context)),
            f"{right.policy}/{right.statement}" if right else "",
            note if decision.allowed else (note or request.resource),
        )
        self._counts[judged] += 1

    def unused(self) -> dict[str, list[Right]]:
        """Return each role's rights that no call has used."""
        return {
            role: sorted(rights - self._used.get(role, set()))
            for role, rights in sorted(self._rights.items())
        }

    def to_json(self) -> dict[str, Any]:
        """Return the record as `toolkit local rights --json` prints it."""
        return {
            "calls": [
                {**asdict(judged), "count": count} for judged, count in sorted(self._counts.items())
            ],
            "unused": {
                role: [asdict(right) for right in rights] for role, rights in self.unused().items()
            },
        }


def kind_of(resource: str) -> str:
    """Return a resource's kind: `ec2:instance`, `s3:object`, `iam:role`, or * for none."""
    parts = resource.split(":", 5)
    if len(parts) < 6:  # noqa: PLR2004 - an ARN has six parts
        return resource
    service, name = parts[2], parts[5]
    if service == "s3":
        return "s3:object" if "/" in name else "s3:bucket"
    return f"{service}:{name.replace(':', '/').partition('/')[0]}"
