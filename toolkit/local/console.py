"""A shell inside a machine, and what the machine wrote on its console."""

from __future__ import annotations

from importlib import resources
from typing import TYPE_CHECKING

from toolkit.errors import LocalError
from toolkit.local.machines import nspawn_command
from toolkit.local.machines.cgroups import Groups
from toolkit.local.machines.machine_directory import Disk
from toolkit.local.machines.procfs import Processes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from toolkit.local.machines.layout import Layout


def enter_argv(layout: Layout, instance_id: str, argv: Sequence[str]) -> list[str]:
    """Return the host command for running `argv` in a running machine.

    It runs as root.
    """
    process_table = Processes()
    for pid in Groups.on_this_host(layout.name).members(instance_id):
        if process_table.is_init(pid) and process_table.is_alive(pid):
            record = Disk(layout.instance(instance_id)).record()
            return nspawn_command.enter_argv(pid, record.environment if record else {}, argv)
    raise LocalError(
        f"{instance_id} has no running machine here",
        next_step="see the instances with: toolkit local status",
    )


def connect_argv(layout: Layout, instance_id: str, port: int) -> list[str]:
    """Return the host command that joins stdio with a machine's port.

    The port is one of its loopback.
    """
    source = (resources.files("toolkit.local.machines") / "relay.py").read_text("utf-8")
    relay = ["/usr/bin/python3", "-I", "-c", source, str(port)]
    return enter_argv(layout, instance_id, relay)


def console_log(layout: Layout, instance_id: str) -> str:
    """Return the console log, also of an instance that is gone."""
    try:
        return layout.console(instance_id).read_text(errors="replace")
    except FileNotFoundError:
        raise LocalError(f"{instance_id} has no console log below {layout.consoles}") from None
