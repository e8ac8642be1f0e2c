"""Do the work of SuspendProgram: terminate the instances of nodes that Slurm powered down."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slurmplugins.errors import EngineError, StateError
from slurmplugins.model import hostlist
from slurmplugins.model.actions import Terminate
from slurmplugins.model.instance import EndCause, machines_by_node
from slurmplugins.power_save.prepare import list_instances
from slurmplugins.slurm.node_queries import known

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from slurmplugins.execution.engine import Engine
    from slurmplugins.model.hostlist import NodeName
    from slurmplugins.model.instance import Instance
    from slurmplugins.model.node import Node


def suspend(engine: Engine, nodes: Iterable[NodeName], cause: EndCause) -> None:
    """Terminate the instances of nodes that Slurm powered down.

    Raises EngineError when Slurm or EC2 can't be read. Nothing is terminated on half a view, and
    reconcile does it later. Reconcile also handles the instance of a node that a live run of resume
    has claimed. That run may have reassigned it to another node by now. Safe to repeat.
    """
    wanted = [node for node in nodes if engine.config.pool_of(node) is not None]
    _let_go(engine, wanted)
    listed, _ = list_instances(engine)
    seen = engine.clock.monotonic()
    states = {node.name: node for node in engine.slurm.nodes()}
    plan = plan_terminations(wanted, engine.journal.claims().named(listed), states, cause)
    machines = [(item.instance.id, item.instance.node) for item in plan]
    try:
        off = {node for _, node in machines if node is not None}  # the plan has only off nodes
        kept = engine.journal.condemn_idle(machines, cause, seen, off)
        plan = tuple(item for item in plan if item.instance.id in kept)
    except StateError as error:  # no run can claim a node either; the money matters more
        engine.log.problem("journal", message=error.message)
    without = set(wanted) - {item.instance.node for item in plan if item.instance.node}
    engine.log.info("planned", terminate=len(plan), without=hostlist.compress(without))
    engine.executor.run(plan)


def _let_go(engine: Engine, nodes: Sequence[NodeName]) -> None:
    """Journal which nodes are off, before any call that may fail.

    Such calls may also take long.
    """
    at = engine.clock.monotonic()
    try:
        off = [name for name, node in known(engine.slurm, nodes).items() if node.off]
        if off:
            engine.journal.let_go(off, at)
    except EngineError as error:  # the caller reads the nodes again, and reports its own failure
        engine.log.warning("not written down", slug=error.slug, message=error.message)


def plan_terminations(
    wanted: Iterable[NodeName],
    listed: Sequence[Instance],
    nodes: Mapping[str, Node],
    cause: EndCause,
) -> tuple[Terminate, ...]:
    """Terminate the instances of nodes that are off at this moment.

    A node that is up again (a late run, a second resume) keeps its instance.
    """
    machines = machines_by_node(listed)
    return tuple(
        Terminate(machine, cause, "Slurm powered the node down")
        for node in wanted
        if node in nodes and nodes[node].off
        for machine in machines.get(node, ())
        if not machine.state.over
    )
