"""The controller brings machines and instances together whatever it finds."""

from __future__ import annotations

from concurrent.futures import Executor, Future
from types import SimpleNamespace

import pytest

from toolkit.local.aws.instance_tables import SPOT_TERMINATION, LocalInstance, Notice, Reason
from toolkit.local.faults import Pool
from toolkit.local.machine_controller import MachineController
from toolkit.local.machines.driver import MachineState
from toolkit.local.machines.none_driver import NoneDriver
from toolkit.local.options import Options


class AtOnce(Executor):
    """Runs work where it is submitted."""

    def submit(self, fn, /, *args, **kwargs):
        future = Future()
        future.set_result(fn(*args, **kwargs))
        return future


class Rows:
    """Stands for the tables: states by name, no moto."""

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
    """Stands for the states: what the controller asks of them."""

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
def world():
    rows = Rows()
    states, driver, network = States(rows), Driver(), Network()
    options = Options(boot_delay=0.0, shutdown_grace=0.0, forget_after=60.0)

    def spec_of(instance):
        return SimpleNamespace(instance_id=instance.id)

    controller = MachineController(rows, states, driver, network, spec_of, options, AtOnce())
    return SimpleNamespace(
        rows=rows, states=states, driver=driver, network=network, controller=controller
    )


def add(world, name="i-1", state="pending", market="spot", behaviour="stop"):
    row = SimpleNamespace(id=name, state=state, instance_initiated_shutdown_behavior=behaviour)
    instance = LocalInstance(row, "r", Pool("t", "z", market), launched_at=world.rows.now)
    world.rows.instances[name] = instance
    return instance


def look(world, times=3, step=1.1):
    for _ in range(times):
        world.controller.tick()
        world.rows.now += step


def test_a_new_instance_gets_a_machine_and_its_sockets(world):
    instance = add(world)
    look(world)
    assert instance.state == "running"
    assert world.driver.state("i-1") is MachineState.RUNNING
    assert world.network.open_in == {"i-1": "netns of i-1"}


def test_a_machine_that_does_not_start_terminates_its_instance(world):
    world.driver.refusals = [RuntimeError("no room")]
    instance = add(world)
    look(world)
    assert instance.state == "terminated"
    assert isinstance(instance.reason, Reason)
    assert "no room" in instance.reason.message


def test_a_terminated_instance_loses_its_machine_its_sockets_and_then_its_row(world):
    instance = add(world)
    look(world)
    world.rows.set_state(instance, "shutting-down")
    look(world)
    assert world.driver.state("i-1") is MachineState.ABSENT
    assert world.network.closed
    assert instance.state == "terminated"
    world.rows.now += 61
    look(world, 1)
    assert world.states.forgotten == ["i-1"]


def test_a_failed_termination_is_repeated(world):
    instance = add(world)
    look(world)
    world.driver.refusals = [RuntimeError("busy")]
    world.rows.set_state(instance, "shutting-down")
    look(world, 1, step=0.1)
    assert instance.state == "shutting-down"
    look(world, 4)
    assert instance.state == "terminated"


def test_an_instance_terminated_before_its_start_has_no_machine(world):
    instance = add(world, state="shutting-down")
    look(world)
    assert instance.state == "terminated"
    assert world.driver.list() == ()


def test_a_stopped_instance_keeps_its_disk_and_starts_again(world):
    instance = add(world)
    look(world)
    world.rows.set_state(instance, "stopping")
    look(world)
    assert instance.state == "stopped"
    assert world.driver.state("i-1") is MachineState.EXITED
    world.rows.set_state(instance, "pending")
    look(world)
    assert instance.state == "running"


def test_a_reboot_starts_the_machine_again(world):
    instance = add(world)
    look(world)
    instance.reboot_requested = True
    look(world)
    assert instance.state == "running"
    assert not instance.reboot_requested
    assert world.driver.state("i-1") is MachineState.RUNNING


@pytest.mark.parametrize(
    ("market", "behaviour", "end"),
    [
        ("on-demand", "stop", "stopped"),
        ("on-demand", "terminate", "terminated"),
        ("spot", "stop", "terminated"),
    ],
)
def test_a_poweroff_inside_the_machine_stops_or_terminates_the_instance(
    world, market, behaviour, end
):
    instance = add(world, market=market, behaviour=behaviour)
    look(world)
    world.driver.stop("i-1", grace=0)
    look(world, 4)
    assert instance.state == end


def test_an_interruption_notice_terminates_the_instance_at_its_deadline(world):
    instance = add(world)
    look(world)
    instance.notice = Notice(time=0.0, deadline=world.rows.now + 10)
    look(world, 5, step=1.0)
    assert instance.state == "running"
    look(world, 10, step=1.0)
    assert instance.state == "terminated"
    assert instance.reason is SPOT_TERMINATION


def test_the_failure_of_one_instance_does_not_delay_others(world):
    world.driver.refusals = [RuntimeError("no room")]
    add(world, "i-1")
    good = add(world, "i-2")
    look(world)
    assert good.state == "running"
