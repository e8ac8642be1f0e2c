"""Run one pass of reconcile: read Slurm and EC2, decide, act, remember."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from slurmplugins.errors import SHOWN, CloudError, EngineError, SlurmError, StateError
from slurmplugins.model.actions import Terminate
from slurmplugins.power_save import circuit_breaker
from slurmplugins.reconciler import (
    boot_failures,
    console_logs,
    instance_ledger,
    recheck,
    requeue,
    rules,
    snapshot,
)
from slurmplugins.reconciler.instance_ledger import LedgerWriter
from slurmplugins.reconciler.pass_state import LastPass, Memory
from slurmplugins.state.journal_view import JournalView

if TYPE_CHECKING:
    from collections.abc import Sequence

    from slurmplugins.execution.engine import Engine
    from slurmplugins.model.actions import Outcome
    from slurmplugins.model.instance import Boots, InstanceHealth
    from slurmplugins.power_save.circuit_breaker import Record


def run_pass(engine: Engine) -> None:
    """Run one pass.

    Raises EngineError, before anything is terminated, when Slurm or EC2 can't be read. Safe to
    repeat.
    """
    engine.steady.keep()
    memory = Memory.load(engine.state)
    try:
        world = read_snapshot(engine, memory)
    except EngineError as error:
        note = f"nothing is done: {error.slug}: {error.message}"
        LastPass(engine.clock.now(), note).save(engine.state)
        raise
    plan = rules.plan(world)
    LastPass(world.now, plan.note, plan.remarks).save(engine.state)
    if plan.note:
        engine.log.warning("held back", note=plan.note)
    agreement = recheck.Agreement(engine, world, plan.actions)
    said = [item for item in plan.actions if not isinstance(item, Terminate)]
    if not plan.note:
        engine.brake.learn(world.instances, world.nodes, world.seen)
    outcomes = engine.executor.run(said, agreement.holding)
    agreement.at_last()
    if len(outcomes) + len(agreement.ends) < len(plan.actions) and recheck.old(engine, world):
        recheck.tell_late(engine, world, plan)
    if not plan.note:
        _bring_back(engine, world)
    ended = engine.executor.run(agreement.ends)
    outcomes += ended
    plan = _with_kept(engine, world, plan, ended)
    learned = replace(
        memory,
        unbacked=dict(plan.unbacked_since),
        doubted_since=plan.doubted_since,
        woken=dict(plan.woken),
        asked=dict(plan.asked),
    )
    _tidy(engine)
    if learned != memory:
        _remember(engine, world, plan, learned)
    if plan.cloud_believed:
        _learn(engine, boot_failures.observe(world))
        _write_ledger(engine, world, plan, learned)
    if outcomes:
        failed = sum(1 for item in outcomes if item.error)
        engine.log.info("pass", actions=len(outcomes), failed=failed)


def read_snapshot(engine: Engine, memory: Memory) -> snapshot.Snapshot:
    """Read EC2 and then Slurm.

    Slurm's answer is then the newer, and a node that just came up is up. Health is asked before
    both. It is many calls, and a minute later its answer is still true. Raises EngineError.
    """
    health = _health(engine)
    instances = engine.cloud.instances()
    seen = engine.clock.monotonic()
    nodes = {node.name: node for node in engine.slurm.nodes()}
    answered = engine.clock.monotonic()
    claims, blind = _claims(engine)
    return snapshot.Snapshot(
        config=engine.config,
        instances=claims.named(instances),
        nodes=nodes,
        claims=claims,
        now=engine.clock.now(),
        unbacked_since=memory.unbacked,
        health=health,
        known=memory.known,
        doubted_since=memory.doubted_since,
        woken=memory.woken,
        asked=memory.asked,
        seen=seen,
        answered=answered,
        steady=claims.at,
        blind=blind,
    )


def _claims(engine: Engine) -> tuple[JournalView, bool]:
    """Read the journal; the flag says that it can't be read."""
    try:
        return engine.journal.claims(), False
    except StateError as error:
        engine.log.problem("nothing is ended", slug=error.slug, message=error.message)
        return JournalView(at=engine.steady.now()), True


def _health(engine: Engine) -> dict[str, InstanceHealth]:
    """Read the instances' health; empty when EC2 does not answer.

    The pass goes on: without it, it does less, and nothing wrong.
    """
    try:
        return {item.id: item for item in engine.cloud.health()}
    except CloudError as error:
        engine.log.warning("health unread", code=error.code, message=error.message)
        return {}


def _bring_back(engine: Engine, world: snapshot.Snapshot) -> None:
    """Requeue jobs that ended because their instance did.

    Slurm is asked for its ended jobs only when an instance was lost.
    """
    lost = requeue.losses(world)
    if not lost:
        return
    try:
        due = requeue.due(engine.slurm.ended(), lost)
    except SlurmError as error:
        engine.log.warning("ended jobs unread", message=error.message)
        return
    for item in due:
        try:
            engine.slurm.requeue(item.job)
            engine.slurm.comment(item.job, item.why)
        except SlurmError as error:  # another was quicker, or slurmctld has forgotten the job
            engine.log.warning("not brought back", job=item.job, message=error.message)
        else:
            engine.log.info("brought back", job=item.job, why=item.why)


def _with_kept(
    engine: Engine, world: snapshot.Snapshot, plan: snapshot.Plan, ended: Sequence[Outcome]
) -> snapshot.Plan:
    """Remark each instance that EC2 refuses to end, for `toolkit status`."""
    kept = [
        f"{item.action.instance.id} is not ended: {item.error}"
        for item in ended
        if item.refused and isinstance(item.action, Terminate)
    ]
    if kept:
        plan = replace(plan, remarks=(*plan.remarks, *kept[:SHOWN]))
        LastPass(world.now, plan.note, plan.remarks).save(engine.state)
    return plan


def _learn(engine: Engine, seen: Boots) -> None:
    """Count boot failures, and keep the consoles of failed instances.

    Logs each change of a pool's state in the circuit breaker.
    """
    now = engine.steady.now()
    before, after = circuit_breaker.update(engine.state, seen, now)
    _tell_standing(engine, before, after)
    for failure in [one for pool in after.pools.values() for one in pool.last]:
        if console_logs.kept(engine.state, failure.instance_id):
            continue
        try:
            text = engine.cloud.console(failure.instance_id)
            if text or now - failure.at > CONSOLE_PATIENCE:
                console_logs.keep(engine.state, failure.instance_id, text)
        except CloudError as error:
            engine.log.warning("console", instance=failure.instance_id, message=error.message)
            if not error.retryable:
                console_logs.keep(engine.state, failure.instance_id, "")
        except OSError as error:
            engine.log.warning("console", instance=failure.instance_id, message=str(error))


CONSOLE_PATIENCE: Final = 600.0
"""Seconds to wait for a console. EC2 posts it some minutes late; after this it is taken to be
empty."""


def _tell_standing(engine: Engine, before: Record, after: Record) -> None:
    for pool in sorted({*before.pools, *after.pools}):
        was = pool in before.pools and before.pools[pool].protected
        now = after.pools.get(pool)
        if now is not None and now.protected and now != before.pools.get(pool):
            engine.log.warning(
                "pool protected",
                pool=pool,
                failures=now.failures,
                retry_at=engine.steady.wall(now.retry_at),
            )
        elif was and (now is None or not now.protected):
            engine.log.info("pool opened", pool=pool)


def _tidy(engine: Engine) -> None:
    """Sweep and compact the journal, before anything is written.

    On a full disk, a smaller journal makes room for the rest.
    """
    try:
        engine.journal.sweep()
        engine.journal.compact()
    except StateError as error:
        engine.log.warning("journal not tidied", message=error.message)


def _remember(
    engine: Engine, world: snapshot.Snapshot, plan: snapshot.Plan, memory: Memory
) -> None:
    """Save the state for the next pass.

    A full disk loses the state, but none of the pass's actions.
    """
    try:
        memory.save(engine.state)
    except StateError as error:
        engine.log.problem("not remembered", message=error.message)
        note = plan.note or f"{error.slug}: {error.message}"
        LastPass(world.now, note, plan.remarks).save(engine.state)


def _write_ledger(
    engine: Engine, world: snapshot.Snapshot, plan: snapshot.Plan, memory: Memory
) -> None:
    """Write the ledger, last of all.

    It is for people, and must not cost a job a pass.
    """
    try:
        ended = engine.journal.claims().ended
    except StateError as error:
        engine.log.warning("ledger", message=error.message)
        return
    entries = instance_ledger.update(memory.ledger, world.instances, ended, world.now)
    written = LedgerWriter(engine.store, engine.clock, engine.log).write(memory.ledger, entries)
    kept = instance_ledger.worth_keeping(written, engine.clock.now())
    if kept != memory.ledger:
        _remember(engine, world, plan, replace(memory, ledger=kept))
