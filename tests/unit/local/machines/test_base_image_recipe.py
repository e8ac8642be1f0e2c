"""The base image's id comes from its recipe.

The image has a complete Python interpreter without unneeded files.
"""

import ast
import dataclasses
import subprocess
from pathlib import Path

import pytest

from toolkit.local.machines import base_image_recipe
from toolkit.local.machines.driver import check_image_id
from toolkit.local.machines.errors import MachineError
from toolkit.local.machines.host_settings import HostSettings
from toolkit.local.machines.layout import Layout
from toolkit.local.machines.python_copy import Interpreter

HOST = HostSettings()
TREE = Path(base_image_recipe.__file__).parent / "tree"


@pytest.fixture
def python(tmp_path):
    prefix = tmp_path / "py"
    library = prefix / "lib/python3.11"
    (prefix / "bin").mkdir(parents=True)
    (prefix / "bin/python3.11").write_text("ELF")
    for name in (
        "os.py",
        "ssl.py",
        "test/test_os.py",
        "tkinter/__init__.py",
        "config-3.11-x86_64/libpython3.11.a",
        "site-packages/torch/__init__.py",
        "site-packages/pip/__main__.py",
        "site-packages/pip-24.0.dist-info/METADATA",
    ):
        (library / name).parent.mkdir(parents=True, exist_ok=True)
        (library / name).touch()
    return Interpreter(prefix, "3.11", (tmp_path / "absent", library / "site-packages"))


def test_the_same_recipe_has_the_same_ami_id(python):
    first = base_image_recipe.image_id(HOST, python)
    assert first == base_image_recipe.image_id(HostSettings(), python)
    assert check_image_id(first)


@pytest.mark.parametrize(
    "changed", [{"mirror": "http://other/debian"}, {"local_cas": {"corp.crt": b"CERT"}}]
)
def test_host_settings_inside_the_base_image_change_its_id(python, changed):
    host = dataclasses.replace(HOST, **changed)
    assert base_image_recipe.image_id(host, python) != base_image_recipe.image_id(HOST, python)


def test_host_settings_of_builders_do_not_change_the_id(python):
    host = dataclasses.replace(HOST, apt_auth=b"secret", resolv_conf=b"x", pip=(("a", "b"),))
    assert base_image_recipe.image_id(host, python) == base_image_recipe.image_id(HOST, python)


def test_the_copied_interpreter_has_the_library_and_pip_and_no_other_package(python, tmp_path):
    python.copy(tmp_path / "tree")
    target = tmp_path / "tree/opt/python"
    assert (target / "bin/python3").resolve() == target / "bin/python3.11"
    copied_files = {
        str(path.relative_to(target / "lib/python3.11"))
        for path in target.rglob("*")
        if path.is_file() and "lib" in path.parts
    }
    assert copied_files == {
        "os.py",
        "ssl.py",
        "site-packages/pip/__main__.py",
        "site-packages/pip-24.0.dist-info/METADATA",
    }


def test_debians_interpreter_has_pip_in_dist_packages(python, tmp_path):
    dataclasses.replace(python, debian=True).copy(tmp_path / "tree")
    packages = tmp_path / "tree/opt/python/lib/python3/dist-packages"
    assert (packages / "pip/__main__.py").is_file()
    assert not (tmp_path / "tree/opt/python/lib/python3.11/site-packages").exists()


def test_a_second_copy_replaces_the_first(python, tmp_path):
    python.copy(tmp_path / "tree")
    (tmp_path / "tree/opt/python/stale").touch()
    python.copy(tmp_path / "tree")
    assert not (tmp_path / "tree/opt/python/stale").exists()


def test_an_interpreter_without_pip_names_the_debian_package(python, tmp_path):
    bare = dataclasses.replace(python, pip_places=())
    with pytest.raises(MachineError, match="python3-pip"):
        bare.copy(tmp_path / "tree")


def test_the_cloud_init_data_source_is_valid_python():
    ast.parse((TREE / "DataSourceEc2Toolkit.py.in").read_text())


@pytest.mark.parametrize(
    ("device", "code", "message"),
    [
        ("fs-0abc", 1, "not of the form"),
        ("host:/export", 1, "not of the form"),
        ("fs-0/../x.fsx.us-east-1.amazonaws.com@tcp:/shared", 1, "not a file system id"),
        ("fs-0abc.fsx.us-east-1.amazonaws.com@tcp:/shared", 2, "No such file or directory"),
    ],
)
def test_mount_lustre_refuses_a_device_that_is_no_file_system_id(device, code, message):
    done = subprocess.run(
        ["/bin/sh", TREE / "mount.lustre", device, "/nonexistent", "-o", "flock"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, message in done.stderr) == (code, True)


def test_the_state_directory_comes_from_the_environment_and_names_the_cloud():
    first = Layout.from_environment({"TOOLKIT_LOCAL_DIR": "/a"})
    second = Layout.from_environment({"TOOLKIT_LOCAL_DIR": "/b"})
    assert Layout.from_environment({}).state == Path("/var/lib/toolkit-local")
    assert first.name != second.name
    assert first.name == Layout(Path("/a")).name
    assert len(first.name) == len("tkl-") + 6
