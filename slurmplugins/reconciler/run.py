"""Run one pass of reconcile: read Slurm and EC2, decide, act, remember."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from slurmplugins.errors import MOST_NAMED, CloudError, EngineError, SlurmError, StateError
from slurmplugins.model.actions import Terminate
from slurmplugins.power_save import circuit_breaker
from slurmplugins.reconciler import (
    boot_failures,
    console_logs,
    instance_ledger,
    placement,
    recheck,
    requeue,
    rules,
)
from slurmplugins.reconciler.instance_ledger import LedgerWriter
from slurmplugins.reconciler.pass_state import LastPass, LedgerPass, PassState
from slurmplugins.reconciler.snapshot import Snapshot
from slurmplugins.slurm.node_queries import with_retries
from slurmplugins.state.journal_view import JournalView
from slurmplugins.system.log_events import LogEvent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from slurmplugins.execution.engine import Engine
    from slurmplugins.model.actions import Outcome
    from slurmplugins.model.instance import BootResults, InstanceHealth
    from slurmplugins.power_save.circuit_breaker import Record
    from slurmplugins.reconciler.snapshot import Plan


def run_pass(engine: Engine) -> None:
    """Run one pass.

    Raises EngineError, before anything is terminated, when Slurm or EC2 can't be read. Safe to
    repeat.
    """
    engine.persistent_clock.save_if_due()
    state = PassState.load(engine.state)
    last_pass_at = LastPass.load(engine.state).at
    try:
        snapshot = read_snapshot(engine, state)
    except EngineError as error:
        blocked_by = f"nothing is done: {error.reason_code}: {error.message}"
        LastPass(engine.clock.now(), blocked_by).save(engine.state)
        raise
    plan = rules.plan(snapshot)
    LastPass(snapshot.now, plan.blocked_by, plan.warnings).save(engine.state)
    if plan.blocked_by:
        engine.log.warning(LogEvent.ACTIONS_BLOCKED, note=plan.blocked_by)
    outcomes = _carry_out(engine, snapshot, plan)
    plan = _with_refused_terminations(engine, snapshot, plan, outcomes)
    engine.launch_budget.forget_begun(lambda: _begun_jobs(engine))
    new_state = replace(
        state,
        without_instance_since=dict(plan.without_instance_since),
        doubted_since=plan.doubted_since,
        last_power_up=dict(plan.last_power_up),
        registration_requests=dict(plan.registration_requests),
    )
    _tidy_journal(engine)
    if new_state != state:
        _save_state(engine, snapshot, plan, new_state)
    if plan.cloud_believed:
        _update_breaker(engine, boot_failures.observe(snapshot))
        _write_ledger(engine, snapshot, plan, new_state, last_pass_at)
    if not plan.blocked_by:
        placement.place_nodes(engine, snapshot)
    if outcomes:
        failed = sum(1 for item in outcomes if item.error)
        engine.log.info(LogEvent.PASS_FINISHED, actions=len(outcomes), failed=failed)


def read_snapshot(engine: Engine, state: PassState) -> Snapshot:
    """Read EC2 and then Slurm.

    Slurm's answer is then the newer, and a node that just came up is up. Health is asked before
    both. It is many calls, and a minute later its answer is still true. Raises EngineError.
    """
    health = _read_health(engine)
    instances = engine.cloud.instances()
    slurm_asked_at = engine.clock.monotonic()
    nodes = {node.name: node for node in engine.slurm.nodes()}
    slurm_answered_at = engine.clock.monotonic()
    journal, journal_unreadable = _read_journal(engine)
    return Snapshot(
        config=engine.config,
        instances=journal.with_current_nodes(instances),
        nodes=nodes,
        journal=journal,
        now=engine.clock.now(),
        without_instance_since=state.without_instance_since,
        health=health,
        known_instances=state.known_instances,
        doubted_since=state.doubted_since,
        last_power_up=state.last_power_up,
        registration_requests=state.registration_requests,
        slurm_asked_at=slurm_asked_at,
        slurm_answered_at=slurm_answered_at,
        persistent_now=journal.time,
        journal_unreadable=journal_unreadable,
    )


def _carry_out(engine: Engine, snapshot: Snapshot, plan: Plan) -> tuple[Outcome, ...]:
    """Change Slurm, requeue jobs, and terminate instances last."""
    guard = recheck.TerminationGuard(engine, snapshot, plan.actions)
    slurm_actions = [item for item in plan.actions if not isinstance(item, Terminate)]
    if not plan.blocked_by:
        engine.launch_budget.update_from_listing(
            snapshot.instances, snapshot.nodes, snapshot.slurm_asked_at
        )
    outcomes = engine.executor.run(slurm_actions, guard.still_valid)
    guard.check_rest()
    tried = len(outcomes) + len(guard.terminations)
    if tried < len(plan.actions) and recheck.is_too_old(engine, snapshot):
        recheck.record_late_pass(engine, snapshot, plan)
    if not plan.blocked_by:
        _requeue_jobs(engine, snapshot)
    return (*outcomes, *engine.executor.run(guard.terminations))


def _read_journal(engine: Engine) -> tuple[JournalView, bool]:
    """Read the journal; the flag says that it can't be read."""
    try:
        return engine.journal.view(), False
    except StateError as error:
        engine.log.failure(
            LogEvent.TERMINATIONS_BLOCKED, slug=error.reason_code, message=error.message
        )
        return JournalView(time=engine.persistent_clock.now()), True


def _read_health(engine: Engine) -> dict[str, InstanceHealth]:
    """Read the instances' health; empty when EC2 does not answer.

    The pass goes on: without it, it does less, and nothing wrong.
    """
    try:
        return {item.id: item for item in engine.cloud.health()}
    except CloudError as error:
        engine.log.warning(LogEvent.HEALTH_QUERY_FAILED, code=error.code, message=error.message)
        return {}


def _requeue_jobs(engine: Engine, snapshot: Snapshot) -> None:
    """Requeue jobs that ended because their instance did.

    Slurm is asked for its ended jobs only when an instance was lost.
    """
    losses = requeue.losses(snapshot)
    if not losses:
        return
    try:
        requeues = requeue.jobs_to_requeue(engine.slurm.ended_jobs(), losses)
    except SlurmError as error:
        engine.log.warning(LogEvent.ENDED_JOB_QUERY_FAILED, message=error.message)
        return
    for item in requeues:
        try:
            engine.slurm.requeue(item.job)
            engine.slurm.comment(item.job, item.comment)
        except SlurmError as error:  # another was quicker, or slurmctld has forgotten the job
            engine.log.warning(LogEvent.JOB_NOT_REQUEUED, job=item.job, message=error.message)
        else:
            engine.log.info(LogEvent.JOB_REQUEUED, job=item.job, why=item.comment)


def _begun_jobs(engine: Engine) -> frozenset[int]:
    """Return the jobs that run; none when slurmctld does not answer.

    The next pass asks again.
    """
    begun_jobs = with_retries(engine.clock, engine.log, engine.slurm.begun_jobs, tries=1)
    return begun_jobs or frozenset()


def _with_refused_terminations(
    engine: Engine, snapshot: Snapshot, plan: Plan, outcomes: Sequence[Outcome]
) -> Plan:
    """Add a warning for each instance that EC2 refuses to terminate."""
    warnings = [
        f"{item.action.instance.id} is not terminated: {item.error}"
        for item in outcomes
        if item.refused and isinstance(item.action, Terminate)
    ]
    if warnings:
        plan = replace(plan, warnings=(*plan.warnings, *warnings[:MOST_NAMED]))
        LastPass(snapshot.now, plan.blocked_by, plan.warnings).save(engine.state)
    return plan


def _update_breaker(engine: Engine, boots: BootResults) -> None:
    """Count boot failures, and keep the consoles of failed instances.

    Logs each change of a pool's state in the circuit breaker.
    """
    now = engine.persistent_clock.now()
    old_record, new_record = circuit_breaker.update(engine.state, boots, now)
    _log_breaker_changes(engine, old_record, new_record)
    for failure in [item for pool in new_record.pools.values() for item in pool.last]:
        if console_logs.is_saved(engine.state, failure.instance_id):
            continue
        try:
            text = engine.cloud.console(failure.instance_id)
            if text or now - failure.at > CONSOLE_SECONDS:
                console_logs.save(engine.state, failure.instance_id, text)
        except CloudError as error:
            engine.log.warning(
                LogEvent.CONSOLE_NOT_SAVED, instance=failure.instance_id, message=error.message
            )
            if not error.retryable:
                console_logs.save(engine.state, failure.instance_id, "")
        except OSError as error:
            engine.log.warning(
                LogEvent.CONSOLE_NOT_SAVED, instance=failure.instance_id, message=str(error)
            )


CONSOLE_SECONDS: Final = 600.0
"""Seconds to wait for a console. EC2 posts it some minutes late; after this it is taken to be
empty."""


def _log_breaker_changes(engine: Engine, old_record: Record, new_record: Record) -> None:
    for pool in sorted({*old_record.pools, *new_record.pools}):
        was_protected = pool in old_record.pools and old_record.pools[pool].protected
        breaker = new_record.pools.get(pool)
        if breaker is not None and breaker.protected and breaker != old_record.pools.get(pool):
            engine.log.warning(
                LogEvent.PROTECTED_MODE_ENTERED,
                pool=pool,
                failures=breaker.failures,
                retry_at=engine.persistent_clock.wall(breaker.retry_at),
            )
        elif was_protected and (breaker is None or not breaker.protected):
            engine.log.info(LogEvent.PROTECTED_MODE_ENDED, pool=pool)


def _tidy_journal(engine: Engine) -> None:
    """Sweep and compact the journal, before anything is written.

    On a full disk, a smaller journal makes room for the rest.
    """
    try:
        engine.journal.remove_dead_locks()
        engine.journal.compact()
    except StateError as error:
        engine.log.warning(LogEvent.JOURNAL_NOT_COMPACTED, message=error.message)


def _save_state(engine: Engine, snapshot: Snapshot, plan: Plan, state: PassState) -> None:
    """Save the state for the next pass.

    A full disk loses the state, but none of the pass's actions.
    """
    try:
        state.save(engine.state)
    except StateError as error:
        engine.log.failure(LogEvent.PASS_STATE_NOT_SAVED, message=error.message)
        blocked_by = plan.blocked_by or f"{error.reason_code}: {error.message}"
        LastPass(snapshot.now, blocked_by, plan.warnings).save(engine.state)


def _write_ledger(
    engine: Engine, snapshot: Snapshot, plan: Plan, state: PassState, last_pass_at: float
) -> None:
    """Write the ledger, last of all.

    It is for people, and must not cost a job a pass.
    """
    try:
        end_causes = engine.journal.view().termination_causes
    except StateError as error:
        engine.log.warning(LogEvent.LEDGER_NOT_WRITTEN, message=error.message)
        return
    entries = instance_ledger.update(
        state.ledger, snapshot.instances, end_causes, snapshot.now, last_pass_at
    )
    written_entries = LedgerWriter(engine.store, engine.clock, engine.log).write(
        state.ledger, entries
    )
    kept_entries = instance_ledger.without_forgotten(written_entries, engine.clock.now())
    if kept_entries != state.ledger:
        _save_state(engine, snapshot, plan, replace(state, ledger=kept_entries))
    # Budgets bill an instance without an end until now.
    if all(written_entries.get(key) == entry for key, entry in entries.items() if entry.ended_at):
        LedgerPass(snapshot.now, engine.clock.boot()).save(engine.state)
