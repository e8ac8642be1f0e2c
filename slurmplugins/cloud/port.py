"""What the runtime needs of a cloud. The contract suite runs every implementation through it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from slurmplugins.model.hostlist import NodeName
    from slurmplugins.model.instance import Instance, InstanceHealth
    from slurmplugins.model.launch import Launched, LaunchRequest


class Cloud(Protocol):
    def launch(self, request: LaunchRequest, intend: Callable[[], None]) -> Launched:
        """Start machines for the first nodes of the request, as many as there are to be had and
        not fewer than it wants at least; none at all otherwise.

        The answer names what each offering refused. The tags are part of the call, so a machine is
        never without its map (one of a fleet can't be told its place before the fleet has
        answered: until then it is nobody, and once its run has an answer or is over, nobody's
        machine is ended). Repeating a request (same attempt) returns the machines of the first
        answer, some of which may have ended, and starts nothing. Raises a CloudError when nothing
        was started; after CloudUnreachable it is unknown whether machines exist.

        `intend` is called last before anything is asked, after whatever must be waited for: how old
        a doubt is counts from there. What it raises goes through, and nothing was asked.
        """
        ...

    def give(self, names: Mapping[str, NodeName], may: Callable[[str], bool]) -> bool:
        """From now on these instances are those nodes, whatever they were launched as.

        `may` is asked about each last before it is renamed, after whatever must be waited for. At
        the first no nothing more is renamed, and the answer is False. Then, and after a CloudError,
        some may have been renamed.
        """
        ...

    def instances(self) -> tuple[Instance, ...]:
        """Every machine with this cluster's tag, ended ones too for as long as the cloud lists
        them. May lag behind launches and terminations by some seconds.
        """
        ...

    def terminate(self, ids: Sequence[str]) -> frozenset[str]:
        """End those machines that carry this cluster's tag, and return the ids that are over.

        Ids without the tag are left alone, and so are ids the cloud does not list (yet); neither is
        returned, so that a caller who must be sure repeats. Terminating twice is no error. Raises
        NotAllEnded, the others being over, where the cloud refuses to end some.
        """
        ...

    def health(self) -> tuple[InstanceHealth, ...]:
        """Machines that EC2 finds impaired, plans something for, or is taking back.

        Machines of others may be among them; those without trouble are not.
        """
        ...

    def console(self, instance_id: str) -> str:
        """What the machine wrote to its console; empty while the cloud has none of it."""
        ...


class ObjectStore(Protocol):
    def create(self, key: str, value: Mapping[str, object]) -> bool:
        """Write a JSON object where there is none yet; False, and nothing written, where there is.
        Raises CloudError.
        """
        ...

    def put(self, key: str, value: Mapping[str, object]) -> None:
        """Write a JSON object, replacing what was there. Raises CloudError."""
        ...

    def get(self, key: str) -> dict[str, object] | None:
        """Read a JSON object, None when there is none. Raises CloudError."""
        ...
