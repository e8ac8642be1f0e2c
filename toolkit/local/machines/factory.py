"""The real parts put together for one state directory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolkit.local.machines import host_settings
from toolkit.local.machines.base_image import BaseBuilder
from toolkit.local.machines.cgroups import Groups
from toolkit.local.machines.host_commands import RealHost
from toolkit.local.machines.image_store import ImageStore
from toolkit.local.machines.nspawn_driver import NspawnDriver
from toolkit.local.machines.python_copy import Interpreter
from toolkit.local.machines.shared_images import Library

if TYPE_CHECKING:
    from toolkit.local.machines.layout import Layout


def nspawn_driver(layout: Layout) -> NspawnDriver:
    """Return the driver of real machines."""
    host = RealHost()
    return NspawnDriver(layout, host, host_settings.read_this_host(host))


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
        host_settings.read_this_host(host),
        Interpreter.of_this_process(),
    )
