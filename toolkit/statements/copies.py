"""The copy of a closed period: all that its report and its statements are printed from.

    periods/2026-10/1/             the first closing of the month
        closed.json, closed/, closed-details/   its days, as a store has them
        period.json                what cluster.yaml, prices and AWS's bill said; booked corrections
        documents/                 statements and accounting journal, as they were issued

Nothing changes a copy. The log of periods has a digest of all its files.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from dataclasses import dataclass, field, replace
from datetime import date
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final

from toolkit.accounting.bill_status import BillStatus, Correction
from toolkit.accounting.cost_policy import CostPolicy, Payer
from toolkit.accounting.period_part import PeriodCorrection
from toolkit.statements import settings as statement_settings
from toolkit.statements.errors import PeriodCopyDamaged
from toolkit.usage import closed_store
from toolkit.usage.cluster_store import ClusterStore

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from toolkit.statements.settings import StatementSettings
    from toolkit.statements.states import PeriodRecord
    from toolkit.usage.closed_store import ClosedDays

FOLDER: Final = "periods"
_FACTS: Final = "period.json"
_DOCUMENTS: Final = "documents"


@dataclass(frozen=True, slots=True)
class PeriodFacts:
    """The facts that a closed period keeps beside its days."""

    settings: StatementSettings
    policy: CostPolicy
    bill_status: BillStatus
    booked: tuple[PeriodCorrection, ...]
    """Corrections of earlier periods that are booked in this one."""
    seen: Mapping[str, Mapping[int, int]]
    """The last closing of each day of a closed period, by that period's digest."""
    finance: Mapping[str, Any] = field(default_factory=dict)
    """The facts of files for finance, as JSON of `toolkit.finance`; empty: it has none."""
    has_prices: bool = True
    """Its statements say the sources of prices. Those of earlier copies do not, and never will."""


@dataclass(frozen=True, slots=True)
class PeriodCopy:
    """A closed period."""

    record: PeriodRecord
    store: ClusterStore
    facts: PeriodFacts

    @property
    def days(self) -> ClosedDays:
        """Return its days, as they were when it was closed."""
        return closed_store.read(self.store)

    def document(self, name: str) -> bytes | None:
        """Return an issued file; None if there is none of this name."""
        path = self.store.folder / _DOCUMENTS / name
        return path.read_bytes() if path.is_file() else None

    def documents(self) -> dict[str, bytes]:
        """Return all issued files by name."""
        folder = self.store.folder / _DOCUMENTS
        return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def write(
    store: ClusterStore,
    temporary: Path,
    record: PeriodRecord,
    days: Sequence[int],
    content: tuple[PeriodFacts, Mapping[str, bytes]],
) -> str:
    """Write the copy of a period's next revision; returns its digest.

    The content is its facts and its issued files. The copy is on disk when this returns.

    The caller holds the store's lock. A copy that no log names is replaced.
    """
    facts, documents = content
    made = temporary / "period"
    closed = closed_store.read(store)
    kept = {day: closed.days[day] for day in days}
    for item in kept.values():
        for file in (*item.charges, item.details):
            target = made / file
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(store.folder / file, target)
    copy = ClusterStore(made)
    made.mkdir(exist_ok=True)
    closed_store.commit(copy, replace(closed, days=kept), ())
    copy.write_json(made / _FACTS, _facts_json(facts))
    (made / _DOCUMENTS).mkdir()
    for name, body in documents.items():
        (made / _DOCUMENTS / name).write_bytes(body)
    place = folder_of(store, record.name, record.revision + 1)
    place.parent.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(place, ignore_errors=True)  # of a closing that was killed before its log entry
    digest = _digest(made)
    _sync_to_disk(made)
    made.rename(place)
    for folder in (place.parent, place.parent.parent, store.folder):
        _sync(folder)
    return digest


def read(store: ClusterStore, record: PeriodRecord) -> PeriodCopy:
    """Return a closed period's copy. Raises PeriodCopyDamaged."""
    folder = folder_of(store, record.name, record.revision)
    copy = ClusterStore(folder)
    try:
        if _digest(folder) != record.digest:
            raise _damaged(folder, "differs from what was closed")
        facts = _facts(copy.read_json(folder / _FACTS) or {})
    except (OSError, KeyError, ValueError, TypeError, AttributeError) as error:
        raise _damaged(folder, f"can't be read: {error}") from error
    return PeriodCopy(record, copy, facts)


def folder_of(store: ClusterStore, period: str, revision: int) -> Path:
    """Return the folder of one revision of a period."""
    return store.folder / FOLDER / period / str(revision)


def _digest(folder: Path) -> str:
    """Return a digest of the names and the content of all files."""
    total = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        total.update(f"{path.relative_to(folder).as_posix()} {content}\n".encode())
    return total.hexdigest()


def _sync_to_disk(folder: Path) -> None:
    """Sync a folder with all that is in it.

    The log's next line fixes the copy's digest, so a power cut must not lose a file of it.
    """
    for path in (*folder.rglob("*"), folder):
        _sync(path)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _damaged(folder: Path, text: str) -> PeriodCopyDamaged:
    return PeriodCopyDamaged(
        f"{folder} {text}",
        next_step="bring the folder back from a copy: it is the only place of a closed period",
    )


def _facts_json(facts: PeriodFacts) -> dict[str, Any]:
    bill = facts.bill_status
    return {
        "settings": statement_settings.to_json(facts.settings),
        "policy": facts.policy.payers(),
        "bill": {
            "estimated": bill.estimated,
            "reconciled": bill.reconciled,
            "final": bill.final,
            "corrections": [
                [item.day.isoformat(), item.resource, str(item.old), str(item.new),
                 str(item.difference), item.at]
                for item in bill.corrections
            ],
        },
        "booked": [
            [item.period, item.account, item.user, item.project, item.job, item.component,
             item.instance, item.instance_type, item.micro, str(item.seconds),
             item.becomes_unknown]
            for item in facts.booked
        ],
        "seen": {
            digest: {str(day): number for day, number in days.items()}
            for digest, days in facts.seen.items()
        },
        "finance": dict(facts.finance),
        "has_prices": facts.has_prices,
    }  # fmt: skip


def _facts(data: Mapping[str, Any]) -> PeriodFacts:
    bill = data["bill"]
    return PeriodFacts(
        settings=statement_settings.from_json(data["settings"]),
        policy=CostPolicy(**{key: Payer(value) for key, value in data["policy"].items()}),
        bill_status=BillStatus(
            bill["estimated"],
            bill["reconciled"],
            bill["final"],
            tuple(_bill_correction(item) for item in bill["corrections"]),
        ),
        booked=tuple(_booked(item) for item in data["booked"]),
        seen={
            digest: {int(day): int(number) for day, number in days.items()}
            for digest, days in data["seen"].items()
        },
        finance=data["finance"],
        has_prices=data.get("has_prices", False),
    )


def _bill_correction(item: Sequence[Any]) -> Correction:
    day, resource, old, new, difference, at = item
    amounts = (Decimal(old), Decimal(new), Decimal(difference))
    return Correction(date.fromisoformat(day), str(resource), *amounts, int(at))


def _booked(item: Sequence[Any]) -> PeriodCorrection:
    period, account, user, project, job, component, instance, instance_type = map(str, item[:8])
    micro, seconds, becomes_unknown = item[8:]
    return PeriodCorrection(
        period=period,
        account=account,
        user=user,
        project=project,
        job=job,
        component=component,
        instance=instance,
        instance_type=instance_type,
        micro=int(micro),
        seconds=Fraction(seconds),
        becomes_unknown=bool(becomes_unknown),
    )
