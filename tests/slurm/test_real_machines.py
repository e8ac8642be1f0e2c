"""Real machines without the AWS API, from their boot to their removal.

The machines have a state directory of their own beside TOOLKIT_LOCAL_DIR. Their base image comes
from the library of both. So the removal of everything cannot touch the machines of other tests.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import shutil
import signal
import subprocess
import sys
import time
from ipaddress import IPv4Interface, IPv4Network
from pathlib import Path

import pytest

from tests.slurm.ports import CLOSED, OPEN, connect_argv
from tests.slurm.traces import host_traces
from toolkit.local.machines import cleanup, enter_machine, factory, preflight
from toolkit.local.machines.driver import AttachedVolume, MachineSpec, MachineState
from toolkit.local.machines.errors import NotRunning
from toolkit.local.machines.firewall import TCP, Firewall, Rule
from toolkit.local.machines.layout import Layout

pytestmark = pytest.mark.machines
SNAPSHOT = "ami-0fffffffffffffff0"
GROUP = "sg-0123456789abcdef0"
WITHIN_GROUP = frozenset({Rule(GROUP, None, None, peer_group=GROUP)})
VOLUME = AttachedVolume("vol-0123456789abcdef0", 1)
PATIENCE = 180.0
START = """
import os, pickle, signal, sys
from toolkit.local.machines import factory
layout, spec = pickle.load(sys.stdin.buffer)
factory.nspawn_driver(layout).start(spec)
os.kill(os.getpid(), signal.SIGKILL)
"""


def wait_until(what, condition):
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {PATIENCE:.0f} s"
        time.sleep(0.1)


@pytest.fixture(scope="module")
def layout(state):
    del state  # needed for TOOLKIT_LOCAL_DIR alone, which it sets
    tier = Layout.from_environment()
    machine_layout = Layout(tier.state.with_name(f"{tier.state.name}-machines"))
    machine_layout.make()
    problems = preflight.check(machine_layout)
    assert not problems, problems
    yield machine_layout
    shutil.rmtree(machine_layout.state)


@pytest.fixture(scope="module")
def base(layout):
    return factory.base_builder(layout).build(lambda _phase, _detail: None)


@pytest.fixture
def driver(layout, base):
    cleanup.remove_everything(layout)
    machine_driver = factory.nspawn_driver(layout)
    yield machine_driver
    cleanup.remove_everything(layout)
    machine_driver.images.remove(SNAPSHOT)


@pytest.fixture
def make_spec(layout, base):
    def make(number, **changed):
        values = {
            "instance_id": f"i-{number:017x}",
            "hostname": f"ip-10-42-1-{number}.ec2.internal",
            "image_id": base.id,
            "address": IPv4Interface(f"10.42.{number % 2}.{number}/24"),
            "mac": f"02:00:00:00:00:{number:02x}",
            "fs_root": layout.filesystems,
            "routes": (IPv4Network("10.42.0.0/16"),),
        }
        return MachineSpec(**(values | changed))

    return make


def run_shell(driver, spec, script, code=0):
    done = driver.execute(spec.instance_id, ["sh", "-c", script], timeout=PATIENCE)
    assert done.returncode == code, (script, done)
    return done.stdout.decode().strip()


def await_boot(driver, spec):
    """Wait until systemd has started the machine's basic services."""
    script = "systemctl is-active basic.target || true"
    wait_until("the boot", lambda: run_shell(driver, spec, script) == "active")


def members(*specs):
    return {GROUP: frozenset(spec.address.ip for spec in specs)}


def test_machines_reach_each_other_and_leave_no_trace_on_the_host(driver, make_spec, layout):
    before = host_traces(layout.state)
    first, second = make_spec(10), make_spec(11)
    for spec in (first, second):
        driver.start(spec)
        driver.start(spec)
    assert run_shell(driver, first, "hostname") == "ip-10-42-1-10"
    assert run_shell(driver, first, "hostname -I") == "10.42.0.10"
    driver.set_firewall(first.vpc_id, Firewall(members(first, second), WITHIN_GROUP, WITHIN_GROUP))
    wait_until(
        "a ping",
        lambda: run_shell(driver, first, "ping -c1 -W1 10.42.1.11 >/dev/null; echo $?") == "0",
    )
    assert run_shell(driver, first, "cat /etc/machine-id") != run_shell(
        driver, second, "cat /etc/machine-id"
    )
    for spec in (first, second):
        driver.delete(spec.instance_id)
        driver.delete(spec.instance_id)
        assert driver.state(spec.instance_id) is MachineState.ABSENT
    assert driver.list() == ()
    assert b"systemd" in driver.console(first.instance_id)
    cleanup.remove_everything(layout)
    assert host_traces(layout.state) == before


# Not http.server: it asks for its host's name before it listens, which may take minutes here.
LISTEN = """
import socket, sys, time
listeners = [socket.create_server(("", int(port))) for port in sys.argv[1:]]
time.sleep(3600)
"""


def test_security_groups_hold_between_machines(driver, make_spec):
    """Permit one port, for members alone, then no way out."""
    client, server, third = (make_spec(number) for number in (22, 23, 24))
    vpc, address = client.vpc_id, str(server.address.ip)
    driver.start(client)
    driver.start(server)
    await_boot(driver, server)
    run_shell(driver, server, f"python3 -c '{LISTEN}' 9998 9999 >/dev/null 2>&1 &")
    for port in (9998, 9999):
        there = connect_argv("127.0.0.1", port)
        wait_until("a listener", lambda there=there: said(driver, server, there) == OPEN)

    def ports():
        return [said(driver, client, connect_argv(address, port)) for port in (9998, 9999)]

    assert ports() == [CLOSED, CLOSED], "nothing permits anything yet"
    one_port = frozenset({Rule(GROUP, TCP, (9999, 9999), peer_group=GROUP)})
    driver.set_firewall(vpc, Firewall(members(client, server, third), one_port, WITHIN_GROUP))
    assert ports() == [CLOSED, OPEN]
    driver.set_firewall(vpc, Firewall(members(server, third), one_port, WITHIN_GROUP))
    assert ports() == [CLOSED, CLOSED], "the client is in no group"
    driver.set_firewall(vpc, Firewall(members(client, server), one_port))
    assert ports() == [CLOSED, CLOSED], "no rule leads out"
    driver.set_firewall(vpc, Firewall(members(client, server), WITHIN_GROUP, one_port))
    assert ports() == [CLOSED, OPEN]


RECEIVE = """
import socket
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(("0.0.0.0", 9997))
while True:
    _, (address, _) = server.recvfrom(100)
    with open("/received", "a") as file:
        file.write(f"{address} ")
"""
SEND = """
import socket, sys
client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
client.bind((sys.argv[1], 0))
client.sendto(b"x", (sys.argv[2], 9997))
"""


def test_a_machine_can_not_send_from_an_address_that_is_not_its_own(driver, make_spec):
    client, server, third = (make_spec(number) for number in (25, 26, 27))
    driver.start(client)
    driver.start(server)
    everybody = members(client, server, third)
    driver.set_firewall(client.vpc_id, Firewall(everybody, WITHIN_GROUP, WITHIN_GROUP))
    run_shell(driver, client, f"ip addr add {third.address.ip}/32 dev eth0")
    await_boot(driver, server)
    run_shell(driver, server, f"python3 -c '{RECEIVE}' >/dev/null 2>&1 &")

    def received():
        for spec in (third, client):
            argv = ("python3", "-c", SEND, str(spec.address.ip), str(server.address.ip))
            said(driver, client, argv)
        return run_shell(driver, server, "cat /received 2>/dev/null || true").split()

    wait_until("a packet", received)
    assert set(received()) == {str(client.address.ip)}


def said(driver, spec, argv):
    return driver.execute(spec.instance_id, argv, timeout=PATIENCE).stdout.decode().strip()


KEEP_NAMESPACES = """
touch /run/kept
for cpu in $(seq 0 $(($(nproc) - 1))); do
  taskset -c $cpu unshare --mount=/run/kept true || exit 1
  umount /run/kept
done
nproc
"""


def test_a_machine_has_all_cpus_and_keeps_a_mount_namespace_made_on_any(driver, make_spec):
    """Keep a namespace as slurmd does for each job."""
    machine = make_spec(20)
    driver.start(machine)
    run_shell(driver, machine, "mount --make-rprivate /run")
    assert run_shell(driver, machine, KEEP_NAMESPACES) == str(len(os.sched_getaffinity(0)))
    driver.delete(machine.instance_id)


def id_of_a_new_namespace(cpu):
    """Return the id of a mount namespace made on this CPU."""
    program = f"""
import os
from toolkit.local.machines import enter_machine
os.sched_setaffinity(0, {{{cpu}}})
enter_machine.check(enter_machine._libc.unshare(enter_machine.CLONE_NEWNS), "unshare")
print(enter_machine.mount_namespace_id("self"))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, check=True
    )
    return int(done.stdout)


def test_no_cpu_makes_a_namespace_with_a_lower_id_than_one_that_is_there():
    cpus = os.sched_getaffinity(0)
    highest = max(id_of_a_new_namespace(cpu) for cpu in cpus)
    enter_machine.give_all_cpus_higher_ids(highest)
    assert all(id_of_a_new_namespace(cpu) > highest for cpu in cpus) or highest == 0


def test_a_volume_outlives_its_machine(driver, make_spec, layout):
    """Attach it, keep it over a restart, and move it."""
    layout.volumes.mkdir(exist_ok=True)
    content = layout.volumes / f"{VOLUME.id}.img"
    with content.open("wb") as file:
        file.truncate(VOLUME.gib << 30)
    subprocess.run(["mkfs.ext4", "-q", content], check=True)  # the base image has no mkfs
    first, second, device = make_spec(20), make_spec(21), VOLUME.device
    driver.start(first)
    for _ in range(2):
        driver.attach(first.instance_id, VOLUME)
    run_shell(driver, first, f"mount {device} /mnt && echo kept > /mnt/state")
    assert not driver.detach(first.instance_id, VOLUME), "it is mounted"
    driver.stop(first.instance_id, grace=30)

    driver.start(make_spec(20, volumes=(VOLUME,)))
    assert run_shell(driver, first, f"mount {device} /mnt && cat /mnt/state") == "kept"
    run_shell(driver, first, "umount /mnt")
    assert driver.detach(first.instance_id, VOLUME)
    run_shell(driver, first, f"test ! -e {device}")

    driver.start(second)
    driver.attach(second.instance_id, VOLUME)
    assert run_shell(driver, second, f"mount {device} /mnt && cat /mnt/state") == "kept"
    driver.delete(second.instance_id)
    assert driver.detach(second.instance_id, VOLUME)
    assert host_traces(layout.state)["loop"] == []


def test_user_data_runs_on_a_builder_and_its_disk_becomes_an_image(driver, make_spec):
    script = b"#!/bin/sh\necho made > /made\nrm /etc/issue\npoweroff\n"
    builder = make_spec(12, address=None, host_network=True, mac="", routes=(), user_data=script)
    driver.start(builder)
    wait_until(
        "the builder's end", lambda: driver.state(builder.instance_id) is MachineState.EXITED
    )
    driver.snapshot(builder.instance_id, SNAPSHOT)
    driver.start(builder)
    assert run_shell(driver, builder, "cat /made; echo more >> /made") == "made"
    driver.delete(builder.instance_id)
    machine = make_spec(13, image_id=SNAPSHOT)
    driver.start(machine)
    assert run_shell(driver, machine, "cat /made") == "made"
    run_shell(driver, machine, "test ! -e /etc/issue")
    run_shell(driver, machine, "test ! -e /etc/pip.conf && test ! -s /etc/resolv.conf")
    assert driver.images_in_use() == {SNAPSHOT}


def test_a_disk_survives_a_reboot_and_a_stop(driver, make_spec):
    spec = make_spec(14)
    driver.start(spec)
    run_shell(driver, spec, "echo kept > /kept")
    init_started = "stat -c %Y /proc/1"
    first = run_shell(driver, spec, init_started)
    time.sleep(1)
    os.kill(driver._init(spec.instance_id), signal.SIGRTMIN + 5)  # reboot.target

    def rebooted():
        try:
            done = driver.execute(spec.instance_id, ["sh", "-c", init_started], timeout=PATIENCE)
        except NotRunning:  # between two boots
            return False
        # This command began before the shutdown. It ends with the machine, or finds no first
        # process.
        return done.returncode == 0 and done.stdout.decode().strip() != first

    wait_until("the reboot", rebooted)
    assert run_shell(driver, spec, "cat /kept") == "kept"
    driver.stop(spec.instance_id, grace=10)
    assert driver.state(spec.instance_id) is MachineState.EXITED
    driver.start(spec)
    assert run_shell(driver, spec, "cat /kept") == "kept"


def test_lustre_is_mounted_as_on_aws_and_shared(driver, make_spec, layout):
    (layout.filesystems / "fs-0abc").mkdir(exist_ok=True)
    mount = "mount -t lustre fs-0abc.fsx.us-east-1.amazonaws.com@tcp:/shared /mnt -o flock"
    specs = make_spec(15), make_spec(16)
    for spec in specs:
        driver.start(spec)
        run_shell(driver, spec, mount)
    run_shell(driver, specs[0], "echo hello > /mnt/file")
    assert run_shell(driver, specs[1], "cat /mnt/file") == "hello"


def test_the_copied_python_makes_environments(driver, make_spec):
    spec = make_spec(17)
    driver.start(spec)
    run_shell(driver, spec, "/opt/python/bin/python3 -m venv --without-pip /opt/v")
    assert "pip" in run_shell(driver, spec, "/opt/python/bin/python3 -m pip --version")
    assert run_shell(driver, spec, "/opt/v/bin/python -c 'import ssl, sqlite3; print(1)'") == "1"


def test_machines_are_listed_and_removed_after_a_kill_9_of_their_processes(
    driver, make_spec, layout
):
    before = host_traces(layout.state)
    spec = make_spec(18)
    start_input = pickle.dumps((layout, spec))
    # A new interpreter, no fork: a child would keep the locks that xdist's threads hold.
    done = subprocess.run(
        [sys.executable, "-c", START], input=start_input, check=False, timeout=PATIENCE
    )
    assert done.returncode == -signal.SIGKILL
    assert driver.list() == (spec.instance_id,)
    assert run_shell(driver, spec, "echo alive") == "alive"
    group = driver._groups
    for pid in set(group.members(spec.instance_id)) - {driver._init(spec.instance_id)}:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it ended meanwhile
            status = Path(f"/proc/{pid}/status").read_text()
            if "\nNSpid:\t" + str(pid) + "\n" in status:  # outside the machine: launcher, nspawn
                os.kill(pid, signal.SIGKILL)
    removed = cleanup.remove_everything(layout)
    assert spec.instance_id in removed.machines
    assert driver.list() == ()
    assert host_traces(layout.state) == before
    assert not cleanup.remove_everything(layout)


def test_a_command_that_times_out_is_killed_inside_the_machine(driver, make_spec):
    spec = make_spec(19)
    driver.start(spec)
    done = driver.execute(spec.instance_id, ["sleep", "8642"], timeout=0.5)
    assert done.returncode == 124
    # A zombie may remain until the machine's init reaps it; init is still booting.
    run_shell(driver, spec, "! pgrep --runstates D,R,S,T -x sleep")
