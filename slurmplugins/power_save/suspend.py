"""Do the work of SuspendProgram: terminate the instances of nodes that Slurm powered down."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slurmplugins.errors import EngineError, StateError
from slurmplugins.model import hostlist
from slurmplugins.model.actions import Terminate
from slurmplugins.model.instance import EndCause, instances_by_node
from slurmplugins.power_save.prepare import list_instances
from slurmplugins.slurm.node_queries import known_nodes
from slurmplugins.system.log_events import LogEvent

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from slurmplugins.execution.engine import Engine
    from slurmplugins.model.hostlist import NodeName
    from slurmplugins.model.instance import Instance
    from slurmplugins.model.node import Node


def suspend(engine: Engine, nodes: Iterable[NodeName], cause: EndCause) -> None:
    """Terminate the instances of nodes that Slurm powered down.

    Raises EngineError when Slurm or EC2 can't be read. Then nothing is terminated, and reconcile
    does it later. Safe to repeat.

    An instance is also left to reconcile while a ResumeProgram process claims its node. That
    process may have reassigned the instance to another node by now.
    """
    pool_nodes = [node for node in nodes if engine.config.pool_of(node) is not None]
    _record_powered_down(engine, pool_nodes)
    instances, _ = list_instances(engine)
    listed_at = engine.clock.monotonic()
    node_by_name = {node.name: node for node in engine.slurm.nodes()}
    plan = plan_terminations(
        pool_nodes, engine.journal.view().with_current_nodes(instances), node_by_name, cause
    )
    try:
        marked_ids = _mark_terminating(engine, plan, listed_at)
        plan = tuple(item for item in plan if item.instance.id in marked_ids)
    except StateError as error:  # no process can claim these nodes either: stop the cost
        engine.log.failure(LogEvent.JOURNAL_WRITE_FAILED, message=error.message)
    nodes_without_instance = set(pool_nodes) - {
        item.instance.node for item in plan if item.instance.node
    }
    engine.log.info(
        LogEvent.SUSPEND_PLANNED,
        terminate=len(plan),
        without=hostlist.compress(nodes_without_instance),
    )
    engine.executor.run(plan)


def _mark_terminating(
    engine: Engine, plan: Sequence[Terminate], listed_at: float
) -> frozenset[str]:
    """Journal the planned ends; return the ids that are ours."""
    # The plan has only nodes that are powered down, or being powered down.
    powered_off = {item.instance.node for item in plan if item.instance.node is not None}
    marked_ids: set[str] = set()
    for cause in sorted({item.cause for item in plan}):
        instance_nodes = [(i.instance.id, i.instance.node) for i in plan if i.cause is cause]
        marked_ids |= engine.journal.mark_terminating_if_idle(
            instance_nodes, cause, listed_at, powered_off
        )
    return frozenset(marked_ids)


def _record_powered_down(engine: Engine, nodes: Sequence[NodeName]) -> None:
    """Journal the powered-down nodes before any call that may fail or hang."""
    read_at = engine.clock.monotonic()
    try:
        powered_off = [
            name for name, node in known_nodes(engine.slurm, nodes).items() if node.powering_off
        ]
        if powered_off:
            engine.journal.record_powered_down(powered_off, read_at)
    except EngineError as error:  # the caller reads the nodes again, and reports its own failure
        engine.log.warning(
            LogEvent.POWER_DOWN_NOT_RECORDED, slug=error.reason_code, message=error.message
        )


def plan_terminations(
    requested_nodes: Iterable[NodeName],
    instances: Sequence[Instance],
    node_by_name: Mapping[str, Node],
    cause: EndCause,
) -> tuple[Terminate, ...]:
    """Plan to terminate the instances of nodes that are powered down now.

    A node that was powered up again meanwhile keeps its instance. EC2's notice is the cause where
    it came before Slurm's suspend.
    """
    by_node = instances_by_node(instances)
    return tuple(
        Terminate(
            instance,
            node.power_down_cause if cause is EndCause.SUSPEND else cause,
            "Slurm powered the node down",
        )
        for name in requested_nodes
        if (node := node_by_name.get(name)) is not None and node.powering_off
        for instance in by_node.get(name, ())
        if not instance.state.terminated
    )
