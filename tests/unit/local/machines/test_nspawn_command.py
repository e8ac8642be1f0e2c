"""Command lines of systemd-nspawn.

They contain no secret, separate host and machine, and accept unusual paths.
"""

from pathlib import Path

from toolkit.local.machines import enter_machine, nspawn_command


def boot(spec, **changed):
    values = {"namespace": None, "binds": {}, "read_only": (), "environment": {}}
    return nspawn_command.boot_argv(spec, Path("/state/root"), **(values | changed))


def test_a_vpc_machine_boots_in_its_own_network_with_cap_net_admin(make_spec):
    argv = boot(make_spec(), namespace=Path("/run/netns/x"))
    assert "--network-namespace-path=/run/netns/x" in argv
    assert "--capability=CAP_NET_ADMIN" in argv


def test_a_builder_has_no_capability_for_the_hosts_network(make_builder):
    argv = boot(make_builder())
    assert not any("NET_ADMIN" in word or "network" in word for word in argv)


def test_a_machine_keeps_its_machine_id_over_restarts(make_spec):
    def machine_id(spec):
        return next(word for word in boot(spec) if word.startswith("--uuid="))

    other = make_spec(instance_id="i-0fedcba9876543210")
    assert machine_id(make_spec()) == machine_id(make_spec())
    assert machine_id(make_spec()) != machine_id(other)


def test_a_colon_in_a_bind_path_is_escaped(make_spec):
    argv = boot(make_spec(), binds={Path("/a:b"): Path("/fsx")}, read_only=(Path("/c:d"),))
    assert r"--bind=/a\:b:/fsx" in argv
    assert r"--bind-ro=/c\:d" in argv
    assert enter_machine.escape("/a:b,c\\d") == "/a\\:b\\,c\\\\d"


def test_a_command_enters_every_namespace_with_a_clean_environment():
    argv = nspawn_command.enter_argv(42, {"A": "1"}, ["printf", "%s", "$HOME; rm"])
    assert argv[:2] == ["nsenter", "--target=42"]
    assert {"--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup", "--root"} <= set(argv)
    assert argv[argv.index("/usr/bin/env") + 1] == "-i"
    assert "A=1" in argv
    assert argv[-3:] == ["printf", "%s", "$HOME; rm"]


def test_the_launch_plan_has_only_the_listed_environment():
    plan = nspawn_command.launch_plan(["true"], overlay=None, cgroups=(), environment={"X": "1"})
    assert plan["env"] == {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "LANG": "C.UTF-8",
        "SYSTEMD_NSPAWN_TMPFS_TMP": "0",
        "X": "1",
    }


def test_the_launcher_imports_only_the_standard_library():
    text = Path(enter_machine.__file__).read_text()
    assert "toolkit" not in "".join(
        line for line in text.splitlines() if line.startswith(("import", "from"))
    )
