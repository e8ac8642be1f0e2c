"""The local cloud put together: moto, the layer over it, faults, metadata, machines."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Self

# Before moto is imported: it reads this then.
os.environ.setdefault("MOTO_DISABLE_GLOBAL_CORS", "true")

from moto.core.base_backend import BackendDict
from moto.core.common_models import BaseModel
from moto.core.model_instances import reset_model_data
from moto.s3.models import s3_backends

from toolkit.local.aws import (
    alarms,
    bucket_metrics,
    cloudwatch_logs,
    instance_status,
    instance_topology,
    request_limits,
    response_methods,
    security_groups,
    spot_prices,
    ssm_sessions,
    stack_buckets,
    stack_groups,
    stack_volumes,
)
from toolkit.local.aws.account_settings import AccountSettings
from toolkit.local.aws.capacity_reservations import CapacityReservations
from toolkit.local.aws.client_tokens import ClientTokens
from toolkit.local.aws.cloudformation import Stacks
from toolkit.local.aws.create_fleet import Fleets
from toolkit.local.aws.fsx import FileSystems
from toolkit.local.aws.iam import assume_role, managed_policies, stack_roles
from toolkit.local.aws.iam.gate import Gate
from toolkit.local.aws.iam.principals import Sessions
from toolkit.local.aws.iam.record import Record
from toolkit.local.aws.images import ImageRegistry, Images
from toolkit.local.aws.instance_states import States
from toolkit.local.aws.instance_tables import LocalInstance, Tables
from toolkit.local.aws.moto_patches import Patches
from toolkit.local.aws.network_interfaces import NetworkInterfaces
from toolkit.local.aws.request_rates import Throttle
from toolkit.local.aws.run_instances import Compute
from toolkit.local.aws.ssm_run_command import Commands
from toolkit.local.aws.volumes import Volumes
from toolkit.local.billing.meter import Meter
from toolkit.local.billing.usage_log import UsageLog
from toolkit.local.control import Control
from toolkit.local.endpoint import Endpoint, Router
from toolkit.local.faults import Faults
from toolkit.local.firewall_controller import FirewallController
from toolkit.local.imds import MetadataService
from toolkit.local.machine_controller import MachineController, Network
from toolkit.local.machine_spec import machine_spec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from types import TracebackType

    from toolkit.local.machines.driver import Driver, MachineSpec
    from toolkit.local.options import Options

log = logging.getLogger(__name__)

WORKERS = 4  # machines started or ended at the same time


class NoNetwork:
    """A stand-in for machines that have no network to listen in."""

    def open(self, instance_id: str, namespace: Path | None) -> None:
        """Do nothing."""

    def close(self, instance_id: str) -> None:
        """Do nothing."""


class Cloud:
    """The local cloud of this process. There is one at a time: moto's tables are the process's.

    As a context manager it forgets everything that moto knew and puts the layer in
    place. On leaving it takes the layer away again. `machine_controller.run` looks after machines,
    in a thread of the caller's.
    """

    def __init__(
        self,
        options: Options,
        driver: Driver,
        registry: ImageRegistry,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        shutdown: Callable[[], None] = lambda: None,
        workers: Executor | None = None,
    ) -> None:
        """Put the parts together; nothing is changed until the context is entered."""
        self.options = options
        self.driver = driver
        self.tables = Tables(clock, wall)
        self.meter = Meter(UsageLog(options.state), wall)
        self.tables.on_state = self.meter.record_instance
        self.faults = Faults(clock)
        self.throttle = Throttle(clock, enabled=options.throttle)
        self.states = States(
            self.tables, lambda instance: self.faults.record_termination(instance.pool)
        )
        self.account = AccountSettings()
        self.capacity_reservations = CapacityReservations(wall)
        self.sessions, self.record = Sessions(), Record()
        self._gate = Gate(self.tables, self.sessions, self.record)
        self.imds = MetadataService(self.tables, self.sessions)
        self._patches = Patches()
        self._registry = registry
        self._workers = workers or ThreadPoolExecutor(WORKERS, "machines")
        self.network: Network = NoNetwork()
        self.firewall_controller = FirewallController(self.tables, driver)
        self.machine_controller = self._new_machine_controller()
        self.endpoint = Endpoint(self.tables, self.faults, self.throttle, self._gate)
        control = Control(options, self.tables, self.faults, self.throttle, self.record, shutdown)
        self.router = Router(self.endpoint, control, self.imds)

    def _new_machine_controller(self) -> MachineController:
        cloud = self

        class Now:
            """The network as it is by then: the daemon adds sockets after this is made."""

            def open(self, instance_id: str, namespace: Path | None) -> None:
                cloud.network.open(instance_id, namespace)
                cloud.firewall_controller.tick()  # before anything in the machine runs

            def close(self, instance_id: str) -> None:
                cloud.network.close(instance_id)

        return MachineController(
            self.tables, self.states, self.driver, Now(), self._spec, self.options, self._workers
        )

    def _spec(self, instance: LocalInstance) -> MachineSpec:
        return machine_spec(
            instance, file_systems=self.options.state / "fsx", port=self.options.port
        )

    def __enter__(self) -> Self:
        """Begin with empty tables and the layer in place."""
        # moto keeps every object it ever made for its dashboard: a leak in a daemon.
        self._patches.replace(BaseModel, "__new__", staticmethod(_untracked))
        tokens = ClientTokens()
        compute = Compute(
            self.tables, self.faults, tokens, self.driver.console, self.options.visible_after
        )
        self._gate.compute = compute
        self.states.install(self._patches)
        compute.install(self._patches)
        NetworkInterfaces(self.tables).install(self._patches)
        security_groups.install(self._patches)
        Fleets(self.tables, self.faults, tokens, compute).install(self._patches)
        Images(self.tables, self._registry, defer, self.states).install(self._patches)
        Commands(self.tables, self.driver, defer, self._gate.agent_may_put).install(self._patches)
        FileSystems(self.options.state / "fsx").install(self._patches)
        volumes = Volumes(self.tables, self.options.state / "volumes")
        volumes.install(self._patches)
        stack_volumes.install(self._patches, volumes)
        Stacks(self.tables, defer).install(self._patches)
        ssm_sessions.install(self._patches)
        stack_buckets.install(self._patches)
        stack_groups.install(self._patches)
        self.account.install(self._patches)
        self.capacity_reservations.install(self._patches)
        managed_policies.install(self._patches)
        stack_roles.install(self._patches)
        assume_role.install(self._patches)
        request_limits.install(self._patches)
        spot_prices.install(self._patches, self.tables.wall)
        instance_status.install(self._patches, self.tables)
        instance_topology.install(self._patches, self.tables)
        cloudwatch_logs.install(self._patches)
        alarms.install(self._patches, self.tables.wall)
        bucket_metrics.install(self._patches, self.tables.wall)
        self.meter.install(self._patches)
        response_methods.install(self._patches)
        forget_everything()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Take the layer away; machines are not touched."""
        self.machine_controller.stop()
        self.firewall_controller.stop()
        self._workers.shutdown(wait=True)
        with self.tables.lock:
            self._patches.undo()


def _untracked(cls: type[object], *_args: object, **_more: object) -> object:
    return object.__new__(cls)


def forget_everything() -> None:
    """Empty every table of moto's.

    moto's own reset first builds all of them anew, in seconds.
    """
    for account in s3_backends.values():
        account.reset()  # buckets hold files, and their names are kept elsewhere as well
    for backend in _backends():
        backend.clear()
    reset_model_data()


def _backends() -> Iterator[BackendDict[Any]]:
    """Yield every service's tables.

    moto's own list loses some: a reset fills others again.
    """
    for name, module in list(sys.modules.items()):
        if name.startswith("moto."):
            yield from (value for value in vars(module).values() if isinstance(value, BackendDict))


def defer(work: Callable[[], None]) -> None:
    """Run slow work in its own thread; exceptions are logged."""

    def run() -> None:
        try:
            work()
        except Exception:
            log.exception("background work failed")

    threading.Thread(target=run, daemon=True).start()
