"""Parsers for the queue, its partitions and their nodes, from scontrol's JSON. No I/O.

A record with a malformed field is left out: no decision is based on it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from slurmplugins.model.queued_job import (
    NodeGroup,
    QueuedJob,
    QueuePartition,
    Request,
    count_tasks,
)
from slurmplugins.slurm import json_parser
from slurmplugins.slurm.json_parser import count, flags, strict_number, text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

_AMOUNT: Final = re.compile(r"(\d{1,15})(?:\.\d+)?([KMGTP]?)", re.ASCII)
_MIB: Final = {"K": 1 / 1024, "": 1, "M": 1, "G": 1024, "T": 1024**2, "P": 1024**3}
_GPU: Final = "gres/gpu"
_NODE_GPU: Final = re.compile(r"gpu(?::([A-Za-z0-9_.-]+))??:(\d{1,6})", re.ASCII)
_GRES: Final = re.compile(
    r"gres[/:]([A-Za-z0-9_]+)(?::([A-Za-z0-9_.-]+))??(?:[:=](\d{1,6}))?", re.ASCII
)
_OTHER_GRES: Final = re.compile(r"gres/(?!gpu)([A-Za-z0-9_]+)", re.ASCII)
_GRES_KEYS: Final = ("tres_per_job", "tres_per_node", "tres_per_socket", "tres_per_task")
_FEATURE: Final = re.compile(r"[A-Za-z0-9_.-]+(&[A-Za-z0-9_.-]+)*", re.ASCII)
_MINUTE: Final = 60.0


def queued_job(item: object) -> QueuedJob | None:
    """Return a job of `scontrol show jobs --json`, if readable."""
    if not isinstance(item, dict):
        return None
    try:
        return _queued_job(item)
    except ValueError:
        return None


def _queued_job(item: Mapping[str, Any]) -> QueuedJob:
    waiting = json_parser.waiting_tasks(item)
    constraint = text(item.get("features"))
    minutes = strict_number(item.get("time_limit"))
    return QueuedJob(
        id=count(item.get("job_id")),
        label=_label(item, waiting),
        states=flags(item.get("job_state")),
        partitions=tuple(filter(None, text(item.get("partition")).split(","))),
        account=text(item.get("account")),
        qos=text(item.get("qos")),
        user=text(item.get("user_name")),
        request=_request(item, constraint),
        priority=count(item.get("priority")),
        reason=text(item.get("state_reason")),
        submitted_at=strict_number(item.get("submit_time")) or 0.0,
        eligible_at=strict_number(item.get("eligible_time")) or None,
        start_at=strict_number(item.get("start_time")) or None,
        end_at=strict_number(item.get("end_time")) or None,
        time_limit=None if minutes is None else minutes * _MINUTE,
        deadline=strict_number(item.get("deadline")) or None,
        tasks=count_tasks(waiting) if waiting else 1,
        array=json_parser.array_job_id(item),
        restarts=count(item.get("restart_cnt")),
        held=item.get("hold") is True,
        batch=item.get("batch_flag") is True,
        may_requeue=item.get("requeue") is True,
        het_job=bool(count(item.get("het_job_id"))),
        required_nodes=text(item.get("required_nodes")),
        licenses=text(item.get("licenses")),
        reservation=text(item.get("resv_name")),
        constraint=constraint,
        comment=text(item.get("comment")),
    )


def _label(item: Mapping[str, Any], waiting: str) -> str:
    """Return the name of this record alone.

    An array's running tasks can't be changed.
    """
    if not waiting:
        return json_parser.job_id_alone(item)
    # Slurm cuts a long list off, and then the array's number stands for all tasks.
    tasks = waiting.partition("%")[0]
    array = json_parser.array_job_id(item)
    return str(array) if "." in tasks else f"{array}_[{tasks}]"


def _request(item: Mapping[str, Any], constraint: str) -> Request:
    request = request_of_tres(text(item.get("tres_req_str")), count(item.get("node_count")) or 1)
    gpus, gpu, other_gres = _gres(item)
    return replace(
        request,
        cpus=max(request.cpus, count(item.get("cpus"))),
        most_nodes=count(item.get("max_nodes")),
        gpus=max(request.gpus, gpus),
        gpu=request.gpu or gpu,
        other_gres=tuple(sorted({*request.other_gres, *other_gres})),
        cpus_of_node=max(
            1, count(item.get("minimum_cpus_per_node")), count(item.get("cpus_per_task"))
        ),
        features=tuple(constraint.split("&")) if _FEATURE.fullmatch(constraint) else (),
    )


def _gres(item: Mapping[str, Any]) -> tuple[int, str, tuple[str, ...]]:
    """Return the least number of GPUs, their kind, and other GRES.

    The sum of a job's TRES has only those that AccountingStorageTRES lists.
    """
    words = [word for key in _GRES_KEYS for word in text(item.get(key)).split(",")]
    found = [match for word in words if (match := _GRES.fullmatch(word))]
    gpus = [match for match in found if match[1] == "gpu"]
    kinds = {match[2] for match in gpus if match[2]}
    return (
        max((int(match[3] or 1) for match in gpus), default=0),
        kinds.pop() if len(kinds) == 1 else "",
        tuple(sorted({match[1] for match in found} - {"gpu"})),
    )


def request_of_tres(tres: str, nodes: int) -> Request:
    """Return the request of a text such as `cpu=4,mem=16G,gres/gpu=1`."""
    amounts = dict(part.split("=", 1) for part in tres.split(",") if "=" in part)
    kinds = {
        name.removeprefix(f"{_GPU}:"): _number(amount)
        for name, amount in amounts.items()
        if name.startswith(f"{_GPU}:")
    }
    return Request(
        cpus=_number(amounts.get("cpu", "")) or 1,
        memory_mib=_memory(amounts.get("mem", "")),
        nodes=nodes,
        gpus=_number(amounts.get(_GPU, "")) or sum(kinds.values()),
        gpu=next(iter(kinds), "") if len(kinds) == 1 else "",
        other_gres=tuple(sorted({match[1] for match in map(_OTHER_GRES.match, amounts) if match})),
    )


def partitions(
    items: Iterable[object],
    nodes: Iterable[object],
    usd_per_hour: Callable[[str, str], str],
) -> dict[str, QueuePartition]:
    """Return the partitions with their nodes, from two answers of scontrol.

    `usd_per_hour` returns the dearest price of a node in a partition.
    """
    groups = _groups(nodes, usd_per_hour)
    result = {}
    for item in items:
        if isinstance(item, dict) and isinstance(name := item.get("name"), str):
            try:
                result[name] = _partition(name, item, tuple(groups.get(name, ())))
            except ValueError:
                continue
    return result


def _partition(name: str, item: Mapping[str, Any], groups: tuple[NodeGroup, ...]) -> QueuePartition:
    priority, maximums = _table(item, "priority"), _table(item, "maximums")
    minutes = strict_number(maximums.get("time"))
    states = flags(_table(item, "partition").get("state") or item.get("state"))
    accounts, qos = _table(item, "accounts"), _table(item, "qos")
    return QueuePartition(
        name=name,
        up="UP" in states,
        max_time=None if minutes is None else minutes * _MINUTE,
        tier=count(priority.get("tier")),
        factor=count(priority.get("job_factor")),
        groups=groups,
        allowed_accounts=_names(accounts.get("allowed")),
        denied_accounts=_names(accounts.get("deny")),
        allowed_qos=_names(qos.get("allowed")),
        denied_qos=_names(qos.get("deny")),
        for_groups=bool(_names(_table(item, "groups").get("allowed"))),
    )


def _groups(
    nodes: Iterable[object], usd_per_hour: Callable[[str, str], str]
) -> dict[str, list[NodeGroup]]:
    counts: dict[str, dict[tuple[Any, ...], int]] = defaultdict(lambda: defaultdict(int))
    for item in nodes:
        if not isinstance(item, dict):
            continue
        try:
            shape = (
                count(item.get("cpus")),
                count(item.get("real_memory")),
                _node_gpus(text(item.get("gres"))),
                frozenset(map(text, item.get("features") or ())),
            )
            node = text(item.get("name"))
            names = [text(name) for name in item.get("partitions") or ()]
        except (ValueError, TypeError):
            continue
        for name in names:
            counts[name][(*shape, usd_per_hour(name, node))] += 1
    return {
        name: [
            NodeGroup(number, cpus, memory, dict(gpus), features, usd)
            for (cpus, memory, gpus, features, usd), number in shapes.items()
        ]
        for name, shapes in counts.items()
    }


def _node_gpus(gres: str) -> tuple[tuple[str, int], ...]:
    """Return the GPUs of `gpu:a10g:1(S:0-1),gpu:4` by kind."""
    gpus: dict[str, int] = defaultdict(int)
    for part in re.sub(r"\([^)]*\)", "", gres).split(","):
        if match := _NODE_GPU.fullmatch(part):
            gpus[match[1] or ""] += int(match[2])
    return tuple(sorted(gpus.items()))


def _number(amount: str) -> int:
    match = _AMOUNT.fullmatch(amount)
    return int(match[1]) if match else 0


def _memory(amount: str) -> int:
    match = _AMOUNT.fullmatch(amount)
    return int(int(match[1]) * _MIB[match[2]]) if match else 0


def _names(value: object) -> tuple[str, ...]:
    return tuple(filter(None, text(value).split(",")))


def _table(item: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = item.get(key)
    return value if isinstance(value, dict) else {}
