"""The driver without machines reports states as the protocol says."""

import pytest

from toolkit.local.machines.driver import Driver, MachineState
from toolkit.local.machines.errors import NotRunning
from toolkit.local.machines.none_driver import NoneDriver


def test_states_follow_start_stop_and_delete(make_spec):
    driver: Driver = NoneDriver()
    spec = make_spec()
    assert driver.state(spec.instance_id) is MachineState.ABSENT
    for _ in range(2):
        driver.start(spec)
        assert driver.state(spec.instance_id) is MachineState.RUNNING
    driver.stop(spec.instance_id, grace=1)
    assert driver.state(spec.instance_id) is MachineState.EXITED
    assert driver.list() == (spec.instance_id,)
    for _ in range(2):
        driver.delete(spec.instance_id)
        assert driver.state(spec.instance_id) is MachineState.ABSENT
    assert driver.list() == ()


def test_stop_without_a_start_creates_nothing(make_spec):
    driver = NoneDriver()
    driver.stop("i-0123456789abcdef0", grace=1)
    assert driver.list() == ()


def test_execute_is_refused_without_a_running_machine(make_spec):
    with pytest.raises(NotRunning):
        NoneDriver().execute("i-0123456789abcdef0", ["true"], timeout=1)
