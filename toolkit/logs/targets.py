"""The targets that a person names (a node, an instance, the head), and their streams."""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import TYPE_CHECKING, Final

from slurmplugins.logs.stream_name import HEAD
from slurmplugins.model import hostlist
from toolkit.logs.errors import LogsAbsent, TargetUnknown

if TYPE_CHECKING:
    from toolkit.config import ClusterConfig
    from toolkit.logs.log_group import LogGroup, Stream

_INSTANCE: Final = re.compile(r"i-[0-9a-f]{8,17}", re.ASCII)


def find_streams(config: ClusterConfig, group: LogGroup, target: str) -> list[Stream]:
    """Return the target's streams, also of instances that no longer exist.

    Raises TargetUnknown for a name that nothing has, and LogsAbsent for a node without a line.
    """
    if _INSTANCE.fullmatch(target):
        streams = [stream for stream in group.streams() if stream.instance == target]
    else:
        _check_name(config, target)
        streams = group.streams(f"{target}/")
    if streams:
        return streams
    raise LogsAbsent(
        f"{target} has sent no line to {group.name}",
        next_step="`toolkit nodes --all` shows whether it has, or had, an instance",
    )


def _check_name(config: ClusterConfig, target: str) -> None:
    hostlists = [config.nodes(pool) for pool in config.pools]
    names = [HEAD, *(str(node) for nodes in hostlists for node in hostlist.expand(nodes))]
    if target in names:
        return
    near = get_close_matches(target, names, n=1, cutoff=0.6)
    raise TargetUnknown(
        f"{target!r} is neither a node nor an instance of cluster {config.cluster}"
        + (f"; did you mean {near[0]!r}?" if near else ""),
        next_step=f"name {HEAD}, one of {', '.join(hostlists)}, or an instance such as i-0abc1234",
    )
