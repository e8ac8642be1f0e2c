"""Launches whose outcome nobody knows: their run was killed, or EC2 did not answer.

The same request with the same token tells: EC2 answers with the machines it started then, or
starts them now. So it is made only while Slurm waits for all of its nodes: a machine of another
would be nobody's, and too old for the node's next job. An answer that tells nothing leaves the
doubt as old as it was: it ends with time, however often EC2 is asked.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from slurmplugins.errors import CloudError, CloudUnreachable, Late, SlurmError
from slurmplugins.model import Assignment
from slurmplugins.slurm import awaited

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from slurmplugins.claims import Claims
    from slurmplugins.clock import Clock
    from slurmplugins.cloud.base import Cloud
    from slurmplugins.journal import Journal
    from slurmplugins.model import Instance, Launched, LaunchRequest
    from slurmplugins.names import NodeName
    from slurmplugins.runtime import Engine


@dataclass(frozen=True, slots=True)
class Attempt:
    """One request of one run. `latest`: the monotonic time after which no call is made. `silent`:
    when its calls were made that have no answer.
    """

    cloud: Cloud
    journal: Journal
    clock: Clock
    run: str
    request: LaunchRequest
    latest: float
    jobs: Sequence[int] = ()
    silent: list[float] = field(default_factory=list)

    def ask(self) -> Launched:
        """Make one call: on disk before it, and after it where the answer is an error. Machines of
        an earlier call that have ended since are left out.

        Each call has its own line: after minutes of throttles and waits, the last of them is as
        fresh a doubt as a first one. Raises CloudError, StateError, Late.
        """
        before = len(self.silent)
        try:
            launched = self.cloud.launch(self.request, self._intend)
        except CloudError as error:
            if len(self.silent) > before and not isinstance(error, CloudUnreachable):
                self.silent.pop()
                self.journal.failed(self.request.attempt, error)
            raise
        living = tuple(item for item in launched.machines if not item.state.lost)
        return replace(launched, machines=living)

    def _intend(self) -> None:
        if self.clock.monotonic() > self.latest:
            raise Late("its turn at EC2 came too late")
        self.silent.append(self.journal.intend(self.request, self.run, self.jobs))


def settle(engine: Engine, run: str, wanted: frozenset[NodeName], latest: float) -> None:
    """Ask again about each launch in doubt that has a wanted node, where Slurm waits for all of its
    nodes, and write down what it was. The run has claimed the wanted ones; the launches' other
    nodes it holds only meanwhile. Nothing is asked after `latest`, by the steady clock.

    What stays in doubt stays so; nothing is launched for its nodes until the last call that got no
    answer is too long ago to matter.
    StateError when the journal can't be used.
    """
    log, journal = engine.log.bind(run=run), engine.journal
    mine: list[LaunchRequest] = []

    def choose(claims: Claims) -> Iterable[NodeName]:
        """The nodes of these launches, unless another run works on one of them."""
        for request in claims.open:
            if wanted.isdisjoint(request.nodes) or not claims.busy.isdisjoint(request.nodes):
                continue
            mine.append(request)
        return [node for request in mine for node in request.nodes if node not in wanted]

    foreign = journal.claim(run, choose, settling=True)

    def ask(request: LaunchRequest) -> None:
        try:
            attempt = Attempt(engine.cloud, journal, engine.clock, run, request, latest)
            launched = attempt.ask()
        except (CloudError, Late) as error:
            told = {"slug": error.slug, "message": error.message}
            log.warning("still in doubt", attempt=request.attempt, **told)
            return
        journal.launched(request.attempt, assignments(launched.machines))
        log.info("settled", attempt=request.attempt, machines=len(launched.machines))

    engine.crew.map(ask, _awaited(engine, mine))
    if foreign:
        journal.release(run, foreign)


def _awaited(engine: Engine, requests: Sequence[LaunchRequest]) -> list[LaunchRequest]:
    """Those for all of whose nodes Slurm waits; none where it can't be asked."""
    nodes = [node for request in requests for node in request.nodes]
    try:
        waiting = awaited(engine.slurm, nodes) if nodes else frozenset()
    except SlurmError as error:
        engine.log.warning("nodes unread", message=error.message)
        return []
    return [request for request in requests if waiting.issuperset(request.nodes)]


def assignments(machines: Iterable[Instance]) -> list[Assignment]:
    """Who is who, of machines that are some node."""
    return [
        Assignment(item.node, item.id, item.address, item.type)
        for item in machines
        if item.node is not None
    ]
