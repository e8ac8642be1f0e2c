"""The local cloud's one process: `python -m toolkit.local.daemon [--detach] OPTIONS`.

Started detached by `lifecycle.up`; ends on SIGTERM, SIGINT or the control API.
On ending it stops every machine it started; what a kill -9 leaves is
`lifecycle.down`'s to find.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING

from toolkit.local.billing.usage_log import UsageLog
from toolkit.local.cloud import Cloud
from toolkit.local.daemon_files import StateFiles
from toolkit.local.image_registry import DiskImageRegistry, MemoryImageRegistry
from toolkit.local.options import Options
from toolkit.local.sockets import Listeners, MachineSockets, bind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from toolkit.local.aws.images import ImageRegistry
    from toolkit.local.machines.driver import Driver

log = logging.getLogger("toolkit.local")


def create_driver(options: Options) -> tuple[Driver, ImageRegistry]:
    """Return the driver the options name, and where its images are kept."""
    if options.driver == "none":
        from toolkit.local.machines.none_driver import NoneDriver

        return NoneDriver(), MemoryImageRegistry()
    from toolkit.local.machines.factory import nspawn_driver
    from toolkit.local.machines.layout import Layout

    driver = nspawn_driver(Layout(options.state))
    return driver, DiskImageRegistry(driver.images, driver, driver.images_in_use)


def serve(options: Options, ready: Callable[[], None]) -> None:
    """Run until told to end; `ready` is called once requests are answered."""
    shutdown_event = threading.Event()
    for signal_number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signal_number, lambda *_: shutdown_event.set())
    listeners = Listeners()
    driver, registry = create_driver(options)
    with Cloud(options, driver, registry, shutdown=shutdown_event.set) as cloud:
        cloud.network = MachineSockets(listeners, options.port, cloud.endpoint, cloud.imds)
        listeners.add("host", bind("127.0.0.1", options.port), cloud.router)
        loops = [listeners.run, cloud.machine_controller.run]
        if options.driver != "none":
            loops.append(cloud.firewall_controller.run)
        with _threads(*loops):
            log.info("listening on 127.0.0.1:%d, driver %s", options.port, options.driver)
            ready()
            shutdown_event.wait()
            log.info("ending")
            cloud.machine_controller.stop()
        listeners.stop()
    for instance_id in driver.list():
        with contextlib.suppress(Exception):
            driver.delete(instance_id)
    UsageLog(options.state).end_all(int(time.time()))
    log.info("ended")


@contextlib.contextmanager
def _threads(*targets: object) -> Iterator[None]:
    for target in targets:
        threading.Thread(target=target, daemon=True).start()  # type: ignore[arg-type]
    yield


def detach() -> Callable[[], None]:
    """Go on in a session of its own, as nobody's child.

    Standard output gets the pid, and `ready` when the returned function is
    called; whoever reads it sees it end when the daemon dies before that.
    """
    pid = os.fork()
    if pid:
        os.write(sys.stdout.fileno(), f"{pid}\n".encode())
        os._exit(0)
    os.setsid()
    ready_pipe = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

    def ready() -> None:
        with contextlib.suppress(BrokenPipeError):
            os.write(ready_pipe, b"ready\n")
        os.close(ready_pipe)

    return ready


def main() -> None:
    """Read the options, take the state directory's lock, serve."""
    *flags, text = sys.argv[1:]
    options = Options.from_json(text)
    ready = detach() if flags == ["--detach"] else lambda: None
    logging.basicConfig(
        level=logging.INFO,
        stream=sys.stderr,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    logging.getLogger("moto").setLevel(logging.ERROR)
    with StateFiles(options.state).hold(options):
        serve(options, ready)


if __name__ == "__main__":
    main()
