"""The ports to AWS that the engine needs. The contract suite tests every implementation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from slurmplugins.model.hostlist import NodeName
    from slurmplugins.model.instance import Instance, InstanceHealth
    from slurmplugins.model.launch import LaunchRequest, LaunchResult


class Cloud(Protocol):
    """The instances of one cluster."""

    def launch(self, request: LaunchRequest, before_call: Callable[[], None]) -> LaunchResult:
        """Launch instances for the first nodes of the request.

        It launches as many as EC2 has, but at least the request's minimum, or none. The result
        also holds the refusals of the offerings.

        The tags are part of the call, so that an instance always has its node's name. A fleet is
        the exception: an instance gets its place in the list of nodes after CreateFleet answered.
        Until then it is no node's instance. Once its run has the answer or has ended, an instance
        of no node is terminated.

        A repeated request (same launch id) returns the instances of the first answer and launches
        none. Some of them may be terminated by then.

        Raises CloudError if no instance was launched. After CloudUnreachable it is unknown whether
        instances exist.

        `before_call` is called directly before the call to EC2, after every wait. The age of an
        unknown outcome counts from there. An error of `before_call` is raised, and EC2 is not
        called.
        """
        ...

    def retag_nodes(
        self, node_by_id: Mapping[str, NodeName], may_retag: Callable[[str], bool]
    ) -> bool:
        """Tag these instances with other nodes than they were launched for.

        `may_retag` is called with each id directly before the instance is tagged, after every wait.
        At the first False, tagging stops and the result is False. Then, and after a CloudError,
        some instances may have been tagged.
        """
        ...

    def instances(self) -> tuple[Instance, ...]:
        """Return every instance with this cluster's tag.

        Terminated instances are included while EC2 lists them. The list may lag behind launches
        and terminations by some seconds. Raises CloudError.
        """
        ...

    def terminate(self, ids: Sequence[str]) -> frozenset[str]:
        """Terminate those instances that carry this cluster's tag.

        Returns the ids that are terminated or shutting down. Ids without the tag are left alone.
        So are ids that EC2 does not list (yet). Neither is returned: a caller that must be sure
        repeats the call. Terminating twice is no error.
        Raises SomeNotTerminated if EC2 refuses some ids; the others are terminated then.
        """
        ...

    def health(self) -> tuple[InstanceHealth, ...]:
        """Return the health of instances with problems.

        A problem is an impairment, a scheduled event, or an interruption by EC2.
        Instances without such problems are left out. Instances of others may be included.
        Raises CloudError.
        """
        ...

    def network_nodes(self, types: Sequence[str]) -> Mapping[str, tuple[str, ...]]:
        """Return EC2's network nodes above each instance of these types.

        The topmost comes first. Instances of others may be included. EC2 tells none of types that
        it does not support, nor of an instance that does not run. Raises CloudError.
        """
        ...

    def console(self, instance_id: str) -> str:
        """Return the instance's console output; empty while EC2 has none.

        Raises CloudError.
        """
        ...


class ObjectStore(Protocol):
    """JSON objects by key."""

    def create(self, key: str, value: Mapping[str, object]) -> bool:
        """Write a JSON object unless the key exists.

        Returns whether it was written. Raises CloudError.
        """
        ...

    def put(self, key: str, value: Mapping[str, object]) -> None:
        """Write or replace a JSON object. Raises CloudError."""
        ...

    def get(self, key: str) -> dict[str, object] | None:
        """Return a JSON object, or None if there is none. Raises CloudError."""
        ...


class RecordStore(Protocol):
    """Objects that are added, and never replaced."""

    def add(self, key: str, body: bytes) -> bool:
        """Write an object unless the key exists.

        Returns whether it was written. Raises CloudError.
        """
        ...
