"""The local cloud's one process: `python -m toolkit.local.daemon OPTIONS`.

Started detached by `lifecycle.up`; ends on SIGTERM, SIGINT or the control API.
On ending it stops every machine it started; what a kill -9 leaves is
`lifecycle.down`'s to find.
"""

from __future__ import annotations

import contextlib
import logging
import signal
import sys
import threading
from typing import TYPE_CHECKING

from toolkit.local.cloud import Cloud
from toolkit.local.options import Options
from toolkit.local.shelves import DiskShelf, MemoryShelf
from toolkit.local.sockets import Listeners, MachineSockets, bind
from toolkit.local.store import StateFiles

if TYPE_CHECKING:
    from collections.abc import Iterator

    from toolkit.local.layer.images import Shelf
    from toolkit.local.machines.driver import Driver

log = logging.getLogger("toolkit.local")


def machines(options: Options) -> tuple[Driver, Shelf]:
    """Return the driver the options name, and where its images are kept."""
    if options.driver == "none":
        from toolkit.local.machines.none import NoneDriver

        return NoneDriver(), MemoryShelf()
    from toolkit.local.machines.factory import nspawn_driver
    from toolkit.local.machines.layout import Layout

    driver = nspawn_driver(Layout(options.state))
    return driver, DiskShelf(driver.images, driver, driver.images_in_use)


def serve(options: Options) -> None:
    """Run until told to end."""
    ending = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ending.set())
    listeners = Listeners()
    driver, shelf = machines(options)
    with Cloud(options, driver, shelf, shutdown=ending.set) as cloud:
        cloud.network = MachineSockets(listeners, options.port, cloud.endpoint, cloud.imds)
        listeners.add("host", bind("127.0.0.1", options.port), cloud.front)
        with _threads(listeners.run, cloud.keeper.run):
            log.info("listening on 127.0.0.1:%d, driver %s", options.port, options.driver)
            ending.wait()
            log.info("ending")
            cloud.keeper.stop()
        listeners.stop()
    for instance_id in driver.list():
        with contextlib.suppress(Exception):
            driver.delete(instance_id)
    log.info("ended")


@contextlib.contextmanager
def _threads(*targets: object) -> Iterator[None]:
    for target in targets:
        threading.Thread(target=target, daemon=True).start()  # type: ignore[arg-type]
    yield


def main() -> None:
    """Read the options, take the state directory's lock, serve."""
    options = Options.from_json(sys.argv[1])
    logging.basicConfig(
        level=logging.INFO,
        stream=sys.stderr,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    logging.getLogger("moto").setLevel(logging.ERROR)
    files = StateFiles(options.state)
    with files.owned(options):
        serve(options)


if __name__ == "__main__":
    main()
