"""The program that makes both worlds agree; a systemd timer runs it as user slurm.

slurm-reconcile           one pass
slurm-reconcile --plan    print what a pass would do, as JSON, and do nothing
"""

from __future__ import annotations

import dataclasses
import json
import sys
from typing import TYPE_CHECKING, Any

from slurmplugins import converge, files, ledger, runtime
from slurmplugins.actions import Terminate
from slurmplugins.errors import CloudError, StateError
from slurmplugins.names import NodeName

if TYPE_CHECKING:
    from pathlib import Path

    from slurmplugins.actions import Action
    from slurmplugins.model import LedgerEntry
    from slurmplugins.runtime import Engine


def main() -> None:
    log = runtime.logger("reconcile")
    dry = "--plan" in sys.argv[1:]

    def work() -> None:
        engine = runtime.assemble(log)
        if dry:
            plan = converge.plan(_world(engine, _Memory.load(engine.state)))
            sys.stdout.write(json.dumps(_printable(plan), indent=2) + "\n")
            return
        with files.locked(engine.state / "reconcile.lock", wait=False) as free:
            if free:
                run(engine)

    sys.exit(runtime.guarded(log, work))


def run(engine: Engine) -> None:
    """One pass. Raises, having ended nothing, when either world can't be read."""
    memory = _Memory.load(engine.state)
    world = _world(engine, memory)
    plan = converge.plan(world)
    if plan.note:
        engine.log.warning("held back", note=plan.note)
    outcomes = engine.executor.run(_agreed(engine, plan.actions))
    ended = engine.journal.claims().ended
    entries = ledger.update(memory.ledger, world.instances, ended, world.now)
    written = _write_ledger(engine, memory, entries)
    _Memory(dict(plan.unbacked_since), written).save(engine.state)
    engine.journal.compact()
    if outcomes:
        failed = sum(1 for item in outcomes if item.error)
        engine.log.info("pass", actions=len(outcomes), failed=failed)


def _world(engine: Engine, memory: _Memory) -> converge.World:
    """The cloud first: what Slurm says is then the newer, and a node that just came up is up."""
    instances = engine.cloud.instances()
    nodes = {node.name: node for node in engine.slurm.nodes()}
    return converge.World(
        config=engine.config,
        instances=instances,
        nodes=nodes,
        claims=engine.journal.claims(),
        now=engine.clock.now(),
        unbacked_since=memory.unbacked,
    )


def _agreed(engine: Engine, actions: tuple[Action, ...]) -> list[Action]:
    """The actions less the ends of machines whose node a run of resume has claimed meanwhile."""
    ends = [item for item in actions if isinstance(item, Terminate)]
    kept: set[str] = set()
    for cause in {item.cause for item in ends}:
        wanted = [(e.instance.id, e.instance.node) for e in ends if e.cause is cause]
        kept |= engine.journal.condemn_idle(wanted, cause)
    return [a for a in actions if not isinstance(a, Terminate) or a.instance.id in kept]


def _write_ledger(
    engine: Engine, memory: _Memory, entries: dict[str, LedgerEntry]
) -> dict[str, LedgerEntry]:
    """Write what changed; what could not be written is left out, and so tried again."""
    written = dict(memory.ledger)
    for instance_id, entry in entries.items():
        known = memory.ledger.get(instance_id)
        if known == entry:
            continue
        try:
            merged = entry
            if known is None:
                stored = ledger.from_json(engine.store.get(ledger.key(instance_id)))
                merged = ledger.merge(entry, stored)
            engine.store.put(ledger.key(instance_id), ledger.to_json(merged))
            written[instance_id] = merged
        except CloudError as error:
            engine.log.warning("ledger", instance=instance_id, message=error.message)
    return {key: item for key, item in written.items() if _worth_keeping(item, engine.clock.now())}


def _worth_keeping(entry: LedgerEntry, now: float) -> bool:
    """EC2 lists ended machines for about an hour; past that, memory of them is only weight."""
    return entry.ended_at is None or now - entry.ended_at < 2 * 3600


@dataclasses.dataclass(frozen=True, slots=True)
class _Memory:
    """From pass to pass. Discardable: without it some graces start anew."""

    unbacked: dict[NodeName, float]
    ledger: dict[str, LedgerEntry]

    @classmethod
    def load(cls, state: Path) -> _Memory:
        try:
            data: dict[str, Any] = json.loads((state / "reconcile.json").read_bytes())
            entries = {key: ledger.from_json(value) for key, value in data["ledger"].items()}
            return cls(
                {NodeName(key): float(value) for key, value in data["unbacked"].items()},
                {key: entry for key, entry in entries.items() if entry is not None},
            )
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return cls({}, {})

    def save(self, state: Path) -> None:
        value = {
            "unbacked": self.unbacked,
            "ledger": {key: ledger.to_json(item) for key, item in self.ledger.items()},
        }
        try:
            files.write_atomically(state / "reconcile.json", json.dumps(value).encode(), mode=0o640)
        except OSError as error:
            raise StateError(f"reconcile's memory can't be written: {error}") from error


def _printable(plan: converge.Plan) -> dict[str, Any]:
    return {
        "note": plan.note,
        "actions": [
            {
                "action": type(item).__name__,
                "node": item.instance.node if isinstance(item, Terminate) else item.node,
                "instance": item.instance.id if isinstance(item, Terminate) else None,
                "why": getattr(item, "why", None) or getattr(item, "reason", None),
            }
            for item in plan.actions
        ],
    }


if __name__ == "__main__":
    main()
