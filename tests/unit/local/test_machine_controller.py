"""The controller brings machines and instances to the same state."""

from __future__ import annotations

from concurrent.futures import Executor, Future
from types import SimpleNamespace

import pytest

from toolkit.local.aws.instance_tables import SPOT_TERMINATION, LocalInstance, Notice, Reason
from toolkit.local.faults import CapacityPool
from toolkit.local.machine_controller import MachineController
from toolkit.local.machines.driver import MachineState
from toolkit.local.machines.none_driver import NoneDriver
from toolkit.local.options import Options


class AtOnce(Executor):
    """An executor that runs work at once, in the calling thread."""

    def submit(self, fn, /, *args, **kwargs):
        future = Future()
        future.set_result(fn(*args, **kwargs))
        return future


class Rows:
    """A stand-in for the tables: instances by id, without moto."""

    def __init__(self) -> None:
        import threading

        self.now = 100.0
        self.lock = threading.RLock()
        self.instances = {}

    def clock(self):
        return self.now

    def set_state(self, instance, name, reason=None):
        instance.row.state = name
        instance.row.reason_text = reason


class States:
    """A stand-in for the states that the controller requests."""

    def __init__(self, rows) -> None:
        self.rows = rows
        self.forgotten = []

    def request_state(self, instance_id, new_state, allowed, reason):
        instance = self.rows.instances[instance_id]
        if instance.state in allowed:
            instance.reason = reason
            self.rows.set_state(instance, new_state, reason)

    def record_terminated(self, instance):
        self.rows.set_state(instance, "terminated", instance.reason)
        instance.terminated_at = self.rows.now

    def forget(self, instance):
        self.forgotten.append(instance.id)
        del self.rows.instances[instance.id]


class Network:
    def __init__(self) -> None:
        self.open_in, self.closed = {}, []

    def open(self, instance_id, namespace):
        self.open_in[instance_id] = namespace

    def close(self, instance_id):
        self.closed.append(instance_id)


class Driver(NoneDriver):
    def __init__(self) -> None:
        super().__init__()
        self.refusals = []

    def start(self, spec, *, on_network=None):
        if self.refusals:
            raise self.refusals.pop()
        on_network(f"netns of {spec.instance_id}")
        super().start(spec)

    def delete(self, instance_id):
        if self.refusals:
            raise self.refusals.pop()
        super().delete(instance_id)


@pytest.fixture
def fakes():
    rows = Rows()
    states, driver, network = States(rows), Driver(), Network()
    options = Options(boot_delay=0.0, shutdown_grace=0.0, forget_after=60.0)

    def spec_of(instance):
        return SimpleNamespace(instance_id=instance.id)

    controller = MachineController(rows, states, driver, network, spec_of, options, AtOnce())
    return SimpleNamespace(
        rows=rows, states=states, driver=driver, network=network, controller=controller
    )


def add_instance(fakes, name="i-1", state="pending", market="spot", behaviour="stop"):
    row = SimpleNamespace(id=name, state=state, instance_initiated_shutdown_behavior=behaviour)
    instance = LocalInstance(row, "r", CapacityPool("t", "z", market), launched_at=fakes.rows.now)
    fakes.rows.instances[name] = instance
    return instance


def tick(fakes, times=3, step=1.1):
    for _ in range(times):
        fakes.controller.tick()
        fakes.rows.now += step


def test_a_new_instance_gets_a_machine_and_its_sockets(fakes):
    instance = add_instance(fakes)
    tick(fakes)
    assert instance.state == "running"
    assert fakes.driver.state("i-1") is MachineState.RUNNING
    assert fakes.network.open_in == {"i-1": "netns of i-1"}


def test_a_machine_that_does_not_start_terminates_its_instance(fakes):
    fakes.driver.refusals = [RuntimeError("no room")]
    instance = add_instance(fakes)
    tick(fakes)
    assert instance.state == "terminated"
    assert isinstance(instance.reason, Reason)
    assert "no room" in instance.reason.message


def test_a_terminated_instance_loses_its_machine_its_sockets_and_then_its_row(fakes):
    instance = add_instance(fakes)
    tick(fakes)
    fakes.rows.set_state(instance, "shutting-down")
    tick(fakes)
    assert fakes.driver.state("i-1") is MachineState.ABSENT
    assert fakes.network.closed
    assert instance.state == "terminated"
    fakes.rows.now += 61
    tick(fakes, 1)
    assert fakes.states.forgotten == ["i-1"]


def test_a_failed_termination_is_repeated(fakes):
    instance = add_instance(fakes)
    tick(fakes)
    fakes.driver.refusals = [RuntimeError("busy")]
    fakes.rows.set_state(instance, "shutting-down")
    tick(fakes, 1, step=0.1)
    assert instance.state == "shutting-down"
    tick(fakes, 4)
    assert instance.state == "terminated"


def test_an_instance_terminated_before_its_start_has_no_machine(fakes):
    instance = add_instance(fakes, state="shutting-down")
    tick(fakes)
    assert instance.state == "terminated"
    assert fakes.driver.list() == ()


def test_a_stopped_instance_keeps_its_disk_and_starts_again(fakes):
    instance = add_instance(fakes)
    tick(fakes)
    fakes.rows.set_state(instance, "stopping")
    tick(fakes)
    assert instance.state == "stopped"
    assert fakes.driver.state("i-1") is MachineState.EXITED
    fakes.rows.set_state(instance, "pending")
    tick(fakes)
    assert instance.state == "running"


def test_a_reboot_starts_the_machine_again(fakes):
    instance = add_instance(fakes)
    tick(fakes)
    instance.reboot_requested = True
    tick(fakes)
    assert instance.state == "running"
    assert not instance.reboot_requested
    assert fakes.driver.state("i-1") is MachineState.RUNNING


@pytest.mark.parametrize(
    ("market", "behaviour", "end"),
    [
        ("on-demand", "stop", "stopped"),
        ("on-demand", "terminate", "terminated"),
        ("spot", "stop", "terminated"),
    ],
)
def test_a_poweroff_inside_the_machine_stops_or_terminates_the_instance(
    fakes, market, behaviour, end
):
    instance = add_instance(fakes, market=market, behaviour=behaviour)
    tick(fakes)
    fakes.driver.stop("i-1", grace=0)
    tick(fakes, 4)
    assert instance.state == end


def test_an_interruption_notice_terminates_the_instance_at_its_deadline(fakes):
    instance = add_instance(fakes)
    tick(fakes)
    instance.notice = Notice(time=0.0, deadline=fakes.rows.now + 10)
    tick(fakes, 5, step=1.0)
    assert instance.state == "running"
    tick(fakes, 10, step=1.0)
    assert instance.state == "terminated"
    assert instance.reason is SPOT_TERMINATION


def test_the_failure_of_one_instance_does_not_delay_others(fakes):
    fakes.driver.refusals = [RuntimeError("no room")]
    add_instance(fakes, "i-1")
    good = add_instance(fakes, "i-2")
    tick(fakes)
    assert good.state == "running"
