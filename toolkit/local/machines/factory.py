"""The real parts put together for one state directory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolkit.local.machines import inherit
from toolkit.local.machines.base import BaseBuilder
from toolkit.local.machines.cgroups import Groups
from toolkit.local.machines.host import RealHost
from toolkit.local.machines.images import ImageStore
from toolkit.local.machines.interpreter import Interpreter
from toolkit.local.machines.library import Library
from toolkit.local.machines.nspawn import NspawnDriver

if TYPE_CHECKING:
    from toolkit.local.machines.layout import Layout


def nspawn_driver(layout: Layout) -> NspawnDriver:
    """Return the driver of real machines."""
    host = RealHost()
    return NspawnDriver(layout, host, inherit.of_this_host(host))


def base_builder(layout: Layout) -> BaseBuilder:
    """Return the builder of this host's base image."""
    layout.make()
    host = RealHost()
    library = Library(layout.library)
    return BaseBuilder(
        layout,
        ImageStore(layout.images, library),
        library,
        Groups.on_this_host(layout.name),
        inherit.of_this_host(host),
        Interpreter.of_this_process(),
    )
