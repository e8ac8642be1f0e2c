"""The Python files that roles run.

Each script reports a change only if it made one, and leaves nothing half done.
"""

import importlib.util
import os
import pwd
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest
import yaml

ROLES = Path(__file__).parents[3] / "ansible" / "roles"


def script(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def publisher():
    return script(ROLES / "base/files/publish_tree.py")


@pytest.fixture
def builder():
    return script(ROLES / "training_env/files/build_env.py")


@pytest.fixture
def source(tmp_path):
    tree = tmp_path / "source"
    (tree / "sub").mkdir(parents=True)
    (tree / "a.py").write_text("A = 1\n")
    (tree / "sub" / "b").write_text("b")
    (tree / "link").symlink_to("sub/b")
    return tree


def published(publisher, capsys, *arguments):
    status = publisher.main([str(argument) for argument in arguments])
    return status, capsys.readouterr().out.strip()


def test_publish_reports_changed_once_and_then_unchanged(publisher, capsys, source, tmp_path):
    dest = tmp_path / "deep" / "dest"
    assert published(publisher, capsys, source, dest) == (0, "changed")
    assert (dest / "sub" / "b").read_text() == "b"
    assert published(publisher, capsys, source, dest) == (0, "unchanged")


def test_published_folders_are_readable_by_all(publisher, capsys, source, tmp_path):
    """Make published folders readable by the user slurm.

    Otherwise a bundle that was unpacked under a strict umask would hide slurmctld's own hooks from
    it.
    """
    for directory in (source, source / "sub"):
        directory.chmod(0o700)
    dest = tmp_path / "dest"
    assert published(publisher, capsys, source, dest) == (0, "changed")
    assert [path.stat().st_mode & 0o777 for path in (dest, dest / "sub")] == [0o755, 0o755]


@pytest.mark.parametrize("change", ["content", "mode", "extra", "missing", "link"])
def test_publish_repairs_any_difference_in_the_destination(
    publisher, capsys, source, tmp_path, change
):
    dest = tmp_path / "dest"
    published(publisher, capsys, source, dest)
    if change == "content":
        (dest / "a.py").write_text("A = 2\n")
    elif change == "mode":
        (dest / "a.py").chmod(0o755)
    elif change == "extra":
        (dest / "c").write_text("")
    elif change == "missing":
        (dest / "sub" / "b").unlink()
    else:
        (dest / "link").unlink()
        (dest / "link").symlink_to("a.py")
    assert published(publisher, capsys, source, dest) == (0, "changed")
    assert publisher.fingerprint(source, None) == publisher.fingerprint(dest, None)


def test_bytecode_in_the_destination_is_ignored(publisher, capsys, source, tmp_path):
    dest = tmp_path / "dest"
    assert published(publisher, capsys, "--compile", source, dest) == (0, "changed")
    assert list(dest.rglob("*.pyc"))
    assert published(publisher, capsys, "--compile", source, dest) == (0, "unchanged")


def test_code_that_others_import_is_published_with_its_bytecode():
    """Compile it, or each job compiles it anew.

    Jobs and daemons have users who can write no bytecode there.
    """
    tasks = [
        task["ansible.builtin.command"]["argv"]
        for path in sorted(ROLES.glob("*/tasks/*.yml"))
        for task in yaml.safe_load(path.read_text()) or ()
        if isinstance(task.get("ansible.builtin.command"), dict)
    ]
    published = [argv for argv in tasks if "{{ toolkit_publish }}" in argv]
    # A stamped tree is an environment, which was compiled as it was built.
    code = [argv for argv in published if "--stamp" not in argv]
    assert len(code) == 3
    assert all("--compile" in argv for argv in code)


def test_publish_with_a_stamp_compares_only_the_stamp(publisher, capsys, source, tmp_path):
    """Compare only the stamp.

    Reading each file of a training environment would take too long at each boot.
    """
    dest = tmp_path / "dest"
    (source / ".stamp").write_text("1")
    assert published(publisher, capsys, "--stamp", ".stamp", source, dest) == (0, "changed")
    (source / "a.py").write_text("A = 3\n")
    assert published(publisher, capsys, "--stamp", ".stamp", source, dest) == (0, "unchanged")
    (source / ".stamp").write_text("2")
    assert published(publisher, capsys, "--stamp", ".stamp", source, dest) == (0, "changed")


def test_publish_removes_the_rest_of_an_interrupted_copy(publisher, capsys, source, tmp_path):
    dest = tmp_path / "dest"
    (tmp_path / ".dest.new").mkdir()
    (tmp_path / ".dest.new" / "half").write_text("")
    assert published(publisher, capsys, source, dest) == (0, "changed")
    assert not (dest / "half").exists()
    assert not list(tmp_path.glob(".dest.*"))


def test_a_missing_source_leaves_the_destination_unchanged(publisher, capsys, source, tmp_path):
    dest = tmp_path / "dest"
    published(publisher, capsys, source, dest)
    assert published(publisher, capsys, tmp_path / "none", dest)[0] == 1
    assert (dest / "a.py").exists()


def fake_python(tmp_path, *, pip):
    """Write a Python with stand-ins for venv, pip and freeze.

    Each stand-in writes its call to a log.
    """
    python = tmp_path / "python3"
    python.write_text(
        "#!/bin/sh\n"
        f'echo "$0 $*" >> {tmp_path}/log\n'
        "for last; do :; done\n"
        'case "$*" in\n'
        f"  '-m pip --version') exit {0 if pip else 1} ;;\n"
        '  *sys.version*) echo "3.11.7 (fake)" ;;\n'
        '  *"-m venv"*) mkdir -p "$last/bin"; cp "$0" "$last/bin/python" ;;\n'
        "  *freeze*) echo numpy==2.0 ;;\n"
        "esac\n"
    )
    python.chmod(0o755)
    return python


def build(builder, capsys, tmp_path, python, *requirements):
    arguments = ["--python", python, "--path", tmp_path / "env", "--seed", tmp_path / "seed/env"]
    status = builder.main([str(argument) for argument in [*arguments, "--", *requirements]])
    return status, capsys.readouterr().out.strip()


@pytest.mark.parametrize("pip", [True, False])
def test_the_environment_is_built_once_and_kept_as_the_seed(builder, capsys, tmp_path, pip):
    """Build the environment with or without pip in the base Python."""
    python = fake_python(tmp_path, pip=pip)
    assert build(builder, capsys, tmp_path, python, "numpy") == (0, "changed")
    assert (tmp_path / "seed/env/.stamp.json").exists()
    assert not (tmp_path / "env").exists()
    assert build(builder, capsys, tmp_path, python, "numpy") == (0, "unchanged")
    log = (tmp_path / "log").read_text()
    assert ("--without-pip" in log) is pip
    assert log.count("numpy") == 1


def test_other_requirements_build_a_new_environment(builder, capsys, tmp_path):
    python = fake_python(tmp_path, pip=True)
    build(builder, capsys, tmp_path, python, "numpy")
    assert build(builder, capsys, tmp_path, python, "numpy", "scipy") == (0, "changed")


def test_a_missing_python_is_named(builder, capsys, tmp_path):
    assert builder.main(
        ["--python", "/no/python", "--path", str(tmp_path / "e"), "--seed", str(tmp_path / "s")]
    )
    assert "/no/python" in capsys.readouterr().err


SENT = """
import sys
sys.path.insert(0, sys.argv[1])
import ansible.module_utils.basic
print(ansible.module_utils.basic.__file__)
"""


@pytest.mark.parametrize("with_ours", [True, False])
def test_modules_of_ansible_import_what_is_installed_and_not_their_own_source(tmp_path, with_ours):
    """Import as a module does, with its zip first on the path."""
    module = tmp_path / "module.zip"
    with zipfile.ZipFile(module, "w") as archive:
        for name in ("__init__", "module_utils/__init__", "module_utils/basic"):
            archive.writestr(f"ansible/{name}.py", "")
    folder = {"PYTHONPATH": str(ROLES.parent / "python")} if with_ours else {}
    argv = [sys.executable, "-c", SENT, str(module)]
    done = subprocess.run(argv, env=folder, capture_output=True, text=True, check=True)
    assert done.stdout.startswith(str(module)) is not with_ours


LISTED = """\
:env:.cert='/etc/ssl/certs/ca-certificates.crt'
:env:.index-url='https://user:it%27s@mirror.example/simple'
global.constraint='/etc/constraints.txt'
global.extra-index-url='file:///opt/a https://b.example/simple'
global.find-links='/opt/wheels /opt/more'
global.index-url='https://pypi.org/simple'
global.no-index='false'
"""


def test_uv_gets_the_settings_of_pip(builder):
    settings = builder.uv_settings(builder.pip_settings(LISTED))
    assert settings == {
        "UV_INDEX_STRATEGY": "unsafe-best-match",
        "UV_DEFAULT_INDEX": "https://user:it%27s@mirror.example/simple",
        "UV_INDEX": "file:///opt/a https://b.example/simple",
        "UV_CONSTRAINT": "/etc/constraints.txt",
        "UV_FIND_LINKS": "/opt/wheels,/opt/more",
        "SSL_CERT_FILE": "/etc/ssl/certs/ca-certificates.crt",
    }


def test_no_index_of_pip_disables_the_index_of_uv(builder):
    assert builder.uv_settings({"no-index": "True"})["UV_NO_INDEX"] == "1"


def test_uv_that_fails_leaves_nothing_behind(builder, tmp_path):
    assert not builder.install_with_uv(["/usr/bin/false"], tmp_path / "env", ["torch"])
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def formatter(monkeypatch, tmp_path):
    """make_filesystem.py, with a mkfs that writes a mark."""
    module = script(ROLES / "head_data/files/make_filesystem.py")
    mkfs = tmp_path / "mkfs"
    mkfs.write_text('#!/bin/sh\nprintf made | dd of="$4" conv=notrunc status=none\n')
    mkfs.chmod(0o755)
    monkeypatch.setattr(module, "MKFS", str(mkfs))
    return module


@pytest.fixture
def blank(tmp_path):
    """A volume of zeros, as EBS gives one."""
    device = tmp_path / "device"
    with device.open("wb") as file:
        file.truncate(8 << 20)
    return device


def test_a_blank_volume_gets_a_filesystem_once(formatter, capsys, blank):
    assert published(formatter, capsys, blank) == (0, "changed")
    assert blank.read_bytes()[:4] == b"made"
    assert published(formatter, capsys, blank) == (0, "unchanged")


@pytest.mark.parametrize("at", [0, 510, 1080, 65_600])
def test_a_volume_that_holds_anything_is_never_formatted(formatter, capsys, blank, at):
    """Put a byte at the mark of each kind of content."""
    with blank.open("r+b") as file:
        file.seek(at)
        file.write(b"\x01")
    before = blank.read_bytes()
    assert published(formatter, capsys, blank) == (0, "unchanged")
    assert blank.read_bytes() == before


def test_a_volume_that_can_not_be_read_is_never_formatted(formatter, tmp_path):
    short = tmp_path / "short"
    short.write_bytes(b"\0" * 1024)
    with pytest.raises(SystemExit, match="only 1024 bytes"):
        formatter.main([str(short)])
    assert short.read_bytes() == b"\0" * 1024
    with pytest.raises(FileNotFoundError):
        formatter.main([str(tmp_path / "absent")])


@pytest.fixture
def keeper(monkeypatch):
    monkeypatch.setattr(os, "sync", lambda: None)  # it would wait for the whole host
    return script(ROLES / "head_data/files/keep_folder.py")


@pytest.fixture
def own_name():
    return pwd.getpwuid(os.geteuid()).pw_name


def test_a_folder_begins_as_a_copy_and_is_kept_after_that(
    keeper, capsys, source, tmp_path, own_name
):
    """Copy the image's folder once; a later image's folder changes nothing."""
    dest = tmp_path / "volume/mysql"
    dest.parent.mkdir()
    (dest.parent / "mysql.new").mkdir()  # of a run that was cut off
    assert published(keeper, capsys, source, dest, own_name) == (0, "changed")
    assert (dest / "sub/b").read_text() == "b"
    (source / "a.py").write_text("another image's")
    assert published(keeper, capsys, source, dest, own_name) == (0, "unchanged")
    assert (dest / "a.py").read_text() == "A = 1\n"
    assert [path.name for path in dest.parent.iterdir()] == ["mysql"]


def test_a_folder_without_a_source_begins_empty_and_private(keeper, capsys, tmp_path, own_name):
    dest = tmp_path / "ssh"
    assert published(keeper, capsys, "/dev/null", dest, own_name) == (0, "changed")
    assert (list(dest.iterdir()), dest.stat().st_mode & 0o777) == ([], 0o700)


def test_a_user_with_another_uid_gets_the_whole_folder(
    keeper, capsys, source, tmp_path, monkeypatch
):
    """Play a newer image, in which the service's user has another uid."""
    dest, given = tmp_path / "mysql", []
    own_uid = os.geteuid()
    user = pwd.struct_passwd(("mysql", "x", own_uid, os.getegid(), "", "", ""))
    monkeypatch.setattr(pwd, "getpwnam", lambda _: user)
    assert published(keeper, capsys, source, dest, "mysql") == (0, "changed")
    user = pwd.struct_passwd(("mysql", "x", own_uid + 1, 7, "", "", ""))
    monkeypatch.setattr(os, "chown", lambda path, *ids, **_: given.append((Path(path).name, ids)))
    assert published(keeper, capsys, source, dest, "mysql") == (0, "changed")
    assert {name for name, _ in given} == {"mysql", "a.py", "sub", "b", "link"}
    assert {ids for _, ids in given} == {(own_uid + 1, 7)}
    assert given[-1][0] == "mysql", "a run that is cut off begins again"


@pytest.fixture
def systemctl(tmp_path, monkeypatch):
    """A systemctl with a process of this test as unit."""
    with subprocess.Popen(["sleep", "600"]) as process:
        program = tmp_path / "systemctl"
        log = tmp_path / "log"
        program.write_text(
            f"#!/bin/sh\ncase $1 in show) echo {process.pid};; *) echo $* >> {log};; esac\n"
        )
        program.chmod(0o755)
        module = script(ROLES / "slurmctld/files/restart_if_older.py")
        monkeypatch.setattr(module, "SYSTEMCTL", str(program))
        yield module, log
        process.kill()


@pytest.mark.parametrize("seconds", [-60, 60])
def test_a_daemon_is_restarted_exactly_if_a_file_is_newer(systemctl, tmp_path, capsys, seconds):
    module, log = systemctl
    for name, age in (("slurm.conf", -3600), ("gres.conf", seconds)):
        (tmp_path / name).write_text("")
        os.utime(tmp_path / name, (time.time() + age,) * 2)
    files = [str(tmp_path / name) for name in ("slurm.conf", "gres.conf", "absent.conf")]
    assert module.main(["slurmctld.service", *files]) == 0
    is_restarted = seconds > 0
    assert capsys.readouterr().out == ("changed\n" if is_restarted else "unchanged\n")
    assert log.exists() is is_restarted
    if is_restarted:
        assert log.read_text() == "restart slurmctld.service\n"


def test_a_daemon_that_does_not_run_is_left(systemctl, tmp_path, capsys, monkeypatch):
    module, log = systemctl
    (tmp_path / "slurm.conf").write_text("")
    monkeypatch.setattr(module, "process", lambda _: 0)
    assert module.main(["slurmctld.service", str(tmp_path / "slurm.conf")]) == 0
    assert (capsys.readouterr().out, log.exists()) == ("unchanged\n", False)
