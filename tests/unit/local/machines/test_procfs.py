"""A machine is found by control group, init process or command line."""

from pathlib import Path

import pytest

from toolkit.local.machines.cgroups import Groups, hierarchies
from toolkit.local.machines.procfs import Processes

HYBRID = """\
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime shared:3 - cgroup cgroup rw,xattr,name=systemd
"""
UNIFIED = "30 23 0:27 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"


@pytest.fixture
def proc(tmp_path):
    root = tmp_path / "proc"
    root.mkdir()
    (root / "meminfo").touch()

    def add(pid, *, nspid, cmdline=(), state="S (sleeping)", children=""):
        home = root / str(pid)
        (home / "task" / str(pid)).mkdir(parents=True)
        (home / "status").write_text(f"Name:\tx\nState:\t{state}\nNSpid:\t{nspid}\n")
        kind = state.partition(" ")[0]
        (home / "stat").write_text(f"{pid} (a (b) c) {kind} " + "0 " * 18 + f"{pid}77 0\n")
        (home / "cmdline").write_bytes(b"".join(f"{word}\0".encode() for word in cmdline))
        (home / "task" / str(pid) / "children").write_text(children)

    return root, add


def test_only_process_1_of_a_child_namespace_is_an_init(proc):
    root, add = proc
    add(1, nspid="1")
    add(50, nspid="50\t1")
    add(51, nspid="51\t2")
    processes = Processes(root)
    assert [pid for pid in (1, 50, 51, 99) if processes.is_init(pid)] == [50]


def test_a_zombie_is_not_alive(proc):
    root, add = proc
    add(50, nspid="50", state="Z (zombie)")
    add(51, nspid="51")
    processes = Processes(root)
    assert [pid for pid in (50, 51, 99) if processes.is_alive(pid)] == [51]


def test_a_process_is_known_again_by_its_start(proc):
    root, add = proc
    add(50, nspid="50", state="Z (zombie)")
    add(51, nspid="51")
    processes = Processes(root)
    assert [processes.started_at(pid) for pid in (50, 51, 99)] == [None, "5177", None]


def test_nspawn_processes_are_found_by_their_state_directory(proc):
    root, add = proc
    add(60, nspid="60", cmdline=["systemd-nspawn", "--quiet", "--directory=/s/instances/i-1/root"])
    add(61, nspid="61", cmdline=["systemd-nspawn", "--directory=/other/instances/i-2/root"])
    add(62, nspid="62", cmdline=["vi", "--directory=/s/instances/i-3/root"])
    add(63, nspid="63", cmdline=["/usr/bin/systemd-nspawn", "--directory=/s/instances-old/i/root"])
    assert Processes(root).nspawns_under(Path("/s/instances")) == ((60, "i-1/root"),)


def test_children_of_a_process_are_read_from_proc(proc):
    root, add = proc
    add(60, nspid="60", children="61 62 ")
    assert Processes(root).children(60) == (61, 62)
    assert Processes(root).children(99) == ()


def test_hybrid_and_unified_cgroup_hierarchies_are_found():
    assert hierarchies(HYBRID) == (Path("/sys/fs/cgroup/systemd"), Path("/sys/fs/cgroup/unified"))
    assert hierarchies(UNIFIED) == (Path("/sys/fs/cgroup"),)
    assert hierarchies("") == ()


def test_members_are_read_from_every_subgroup_and_hierarchy(tmp_path):
    roots = (tmp_path / "systemd", tmp_path / "unified")
    for root in roots:
        root.mkdir()
    groups = Groups("tkl-abc123", roots)
    first, second = groups.make("i-1")
    (first / "payload/x.service").mkdir(parents=True)
    (first / "payload/x.service/cgroup.procs").write_text("30\n0\n")
    (second / "cgroup.procs").write_text("20\n30\n")
    assert groups.members("i-1") == (20, 30)
    assert groups.members("i-2") == ()
    assert groups.machines() == ("i-1",)


def test_remove_deletes_a_group_its_subgroups_and_the_empty_parent(tmp_path):
    groups = Groups("tkl-abc123", (tmp_path,))
    (group,) = groups.make("i-1")
    (group / "payload/init.scope").mkdir(parents=True)
    groups.remove("i-1")
    groups.remove("i-1")
    assert list(tmp_path.iterdir()) == []
