"""The preflight names all missing things at once and changes nothing.

It says for each thing how to get it.
"""

import pytest

from toolkit.local.machines import __main__ as entry, preflight
from toolkit.local.machines.layout import Layout
from toolkit.local.machines.python_copy import Interpreter

ALL = "000001ffffffffff"
HYBRID = "40 31 0:37 / {root} rw - cgroup cgroup rw,name=systemd\n"


@pytest.fixture
def ready(tmp_path, host, monkeypatch):
    """A host without faults; each test breaks one thing."""
    proc, groups, library = tmp_path / "proc", tmp_path / "cgroup", tmp_path / "lib"
    (proc / "self").mkdir(parents=True)
    groups.mkdir()
    (library / "pip").mkdir(parents=True)
    (library / "pip/__main__.py").touch()
    (proc / "self/status").write_text(f"Name:\tx\nCapEff:\t{ALL}\n")
    (proc / "self/mountinfo").write_text(HYBRID.format(root=groups))
    (proc / "meminfo").write_text("MemTotal: 8000000 kB\nMemAvailable: 7000000 kB\n")
    (tmp_path / "keyring").touch()
    monkeypatch.setattr(preflight, "DISK_NEEDED", 0)

    def make(**changed):
        values = {
            "layout": Layout(tmp_path / "not/yet/there"),
            "host": host,
            "which": lambda name: f"/usr/bin/{name}",
            "keyring": tmp_path / "keyring",
            "proc": proc,
            "uid": lambda: 0,
            "interpreter": Interpreter(tmp_path, "3.11", (library,)),
        }
        return preflight.Preflight(**(values | changed))

    return make


def test_a_complete_host_has_no_problems_and_is_not_changed(ready, tmp_path):
    before = sorted(tmp_path.rglob("*"))
    assert ready().problems() == []
    assert sorted(tmp_path.rglob("*")) == before


def test_every_missing_requirement_is_reported_at_once(ready, tmp_path):
    problems = ready(
        uid=lambda: 1000,
        which=lambda name: None if name in {"debootstrap", "systemd-nspawn"} else name,
        keyring=tmp_path / "absent",
    ).problems()
    assert [problem.requirement.split()[0] for problem in problems] == [
        "root",
        "commands",
        "Debian's",
    ]
    assert problems[1].fix == "apt-get install debootstrap systemd-container"
    assert all(problem.fix and problem.actual for problem in problems)


def test_a_missing_capability_is_named(ready, tmp_path):
    (tmp_path / "proc/self/status").write_text("CapEff:\t00000000a80425fb\n")  # Docker's default
    (problem,) = ready().problems()
    assert "CAP_SYS_ADMIN" in problem.requirement
    assert "CAP_NET_ADMIN" in problem.requirement


def test_cap_sys_resource_is_not_needed(ready, tmp_path):
    (tmp_path / "proc/self/status").write_text("CapEff:\t000001fffeffffff\n")
    assert ready().problems() == []


def test_too_little_disk_space_is_reported_for_the_nearest_existing_folder(
    ready, tmp_path, monkeypatch
):
    monkeypatch.setattr(preflight, "DISK_NEEDED", 1 << 60)
    (problem,) = ready().problems()
    assert str(tmp_path) in problem.requirement
    assert "TOOLKIT_LOCAL_DIR" in problem.fix


def test_too_little_memory_is_reported(ready, tmp_path):
    (tmp_path / "proc/meminfo").write_text("MemAvailable: 1000000 kB\n")
    (problem,) = ready().problems()
    assert "memory" in problem.requirement


def test_a_python_without_pip_is_reported(ready, tmp_path):
    (problem,) = ready(interpreter=Interpreter(tmp_path, "3.11", (tmp_path,))).problems()
    assert "python3-pip" in problem.fix


@pytest.mark.parametrize(
    ("command", "message", "what"),
    [
        ("ip link add name tk0 type veth", "Unknown device type.", "veth"),
        ("sysctl --quiet --write net.ipv4.ip_forward=1", "Read-only file system", "router"),
    ],
)
def test_a_kernel_without_veth_or_router_is_reported(ready, host, command, message, what):
    host.broken[f"unshare --net -- {command}"] = message
    (problem,) = ready().problems()
    assert what in problem.requirement
    assert problem.actual == message


def test_a_state_directory_without_overlay_support_is_reported(ready, host):
    host.broken[preflight.sys.executable] = "Traceback\nOSError: [Errno 22] Invalid argument"
    (problem,) = ready().problems()
    assert "overlay" in problem.requirement
    assert problem.actual == "OSError: [Errno 22] Invalid argument"


def test_a_host_without_control_groups_is_reported(ready, tmp_path):
    (tmp_path / "proc/self/mountinfo").write_text("")
    (problem,) = ready().problems()
    assert "control groups" in problem.requirement


def test_less_disk_space_is_required_if_the_base_image_exists(ready, tmp_path, monkeypatch):
    monkeypatch.setattr(preflight, "DISK_NEEDED", 1 << 60)
    monkeypatch.setattr(preflight, "DISK_NEEDED_AGAIN", 0)
    checks = ready()
    (checks.layout.images / "ami-0123456789abcdef0").mkdir(parents=True)
    assert checks.problems() == []


def test_the_preflight_command_prints_problems_of_the_host(monkeypatch, capsys):
    problems = [preflight.Problem("16 GB free at /", "3.0 GB", "free some")]
    monkeypatch.setattr(
        preflight, "check", lambda _layout, *, port: problems if port == 4566 else []
    )
    monkeypatch.setattr(entry.sys, "argv", ["machines", "4566"])
    assert entry.main() == 1
    assert capsys.readouterr().err == "16 GB free at /: 3.0 GB; free some\n"
    limitations = [preflight.Problem("security groups", "no nft", "install it")]
    monkeypatch.setattr(preflight, "limitations", lambda _layout: limitations)
    monkeypatch.setattr(entry.sys, "argv", ["machines", "4577"])
    assert entry.main() == 0
    assert capsys.readouterr().err == "security groups: no nft; install it\n"


def test_a_host_without_nftables_runs_machines_and_its_limitation_is_named(ready, host):
    host.broken["unshare --net -- nft"] = (
        "unshare: failed to execute nft: No such file or directory"
    )
    assert ready().problems() == []
    (limitation,) = ready().limitations()
    assert str(limitation) == (
        "security groups that hold between machines: unshare: failed to execute nft: No such file"
        " or directory; apt-get install nftables"
        " (CONFIG_NF_TABLES, CONFIG_NF_CONNTRACK in the kernel)"
    )
    host.broken.clear()
    assert ready().limitations() == []
