"""The role ec2: an image's kernel, and the services of each instance."""

import importlib.util
import io
import json
import re
import subprocess
from pathlib import Path

import pytest
from jinja2.nativetypes import NativeEnvironment
from ruamel.yaml import YAML

ROLE = Path(__file__).parents[3] / "ansible/roles/ec2"
CLIENT = "lustre-client-modules-"
LUSTRE = ["linux-image-{kernel}", CLIENT + "{kernel}"]
PREBUILT = [*LUSTRE, "linux-modules-nvidia-580-server-open-{kernel}"]
COMPILED = [*LUSTRE, "linux-headers-{kernel}", "nvidia-headless-580-server-open"]


@pytest.fixture
def chooser():
    spec = importlib.util.spec_from_file_location("choose_kernel", ROLE / "files/choose_kernel.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Archive:
    """An apt repository that can install the packages in it."""

    def __init__(self, *packages) -> None:
        self.packages = set(packages)

    def can(self, packages):
        return set(packages) <= self.packages


def kernels_of(*releases):
    return [name.format(kernel=release) for release in releases for name in LUSTRE]


def test_the_running_kernel_comes_first_if_it_has_a_lustre_client(chooser):
    names = [CLIENT + release for release in ("6.8.0-1063-aws", "6.8.0-1057-aws")]
    assert chooser.candidates(names, "6.8.0-1057-aws")[0] == "6.8.0-1057-aws"


def test_otherwise_the_newest_kernel_by_number_comes_first(chooser):
    releases = ["6.8.0-1009-aws", "6.17.0-1007-aws", "6.8.0-1063-aws", "6.8.0-999-aws"]
    kernels = chooser.candidates([CLIENT + release for release in releases], "7.0.0-1018-aws")
    assert kernels == ["6.17.0-1007-aws", "6.8.0-1063-aws", "6.8.0-1009-aws", "6.8.0-999-aws"]


def test_packages_of_other_kernels_are_no_candidates(chooser):
    names = [CLIENT + "aws", CLIENT + "6.8.0-31-generic", CLIENT + "6.8.0-1063-aws-64k", "lustre"]
    assert chooser.candidates(names, "6.8.0-31-generic") == []


def test_a_kernel_without_an_image_package_is_skipped(chooser):
    archive = Archive(*kernels_of("6.8.0-1057-aws"), CLIENT + "6.8.0-1060-aws")
    chosen = chooser.choose([LUSTRE], ["6.8.0-1060-aws", "6.8.0-1057-aws"], archive.can)
    assert chosen == ("6.8.0-1057-aws", kernels_of("6.8.0-1057-aws"))


def test_an_older_kernel_with_prebuilt_modules_is_preferred_to_compiling(chooser):
    releases = ["6.8.0-1063-aws", "6.8.0-1057-aws"]
    prebuilt = "linux-modules-nvidia-580-server-open-6.8.0-1057-aws"
    headers = [f"linux-headers-{kernel}" for kernel in releases]
    archive = Archive(*kernels_of(*releases), *headers, "nvidia-headless-580-server-open", prebuilt)
    assert chooser.choose([PREBUILT, COMPILED], releases, archive.can)[0] == "6.8.0-1057-aws"
    archive.packages.discard(prebuilt)
    kernel, packages = chooser.choose([PREBUILT, COMPILED], releases, archive.can)
    assert kernel == "6.8.0-1063-aws"
    assert "linux-headers-6.8.0-1063-aws" in packages


@pytest.mark.parametrize(
    ("clients", "says"),
    [
        ("", "no Lustre client"),
        (CLIENT + "6.8.0-1057-aws", "set images.base to an older image"),
    ],
)
def test_a_build_without_a_suitable_kernel_fails_and_says_what_to_do(
    chooser, monkeypatch, capsys, clients, says
):
    def apt(*arguments):
        code = 0 if arguments[0] == "apt-cache" else 100
        return subprocess.CompletedProcess(arguments, code, clients, "E: Unable to locate package")

    monkeypatch.setattr(chooser, "_apt", apt)
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps([LUSTRE])))
    assert chooser.main(["--running", "7.0.0-1018-aws"]) == 1
    output = capsys.readouterr()
    assert says in output.err
    assert not output.out


def defaults(**options):
    """Return the role's defaults as Ansible reads them."""
    values = YAML(typ="safe").load((ROLE / "defaults/main.yml").read_text(encoding="utf-8"))
    environment = NativeEnvironment()

    def read(value):
        if isinstance(value, list):
            return [read(item) for item in value]
        if not isinstance(value, str) or "{{" not in value:
            return value
        names = re.findall(r"\bec2_\w+", value)
        return environment.from_string(value).render(
            options | {name: read(values[name]) for name in names}
        )

    return read(values["ec2_driver_choices"])


def test_images_without_gpus_need_only_a_lustre_client():
    (packages,) = defaults()
    assert [name for name in packages if "{kernel}" not in name] == []
    assert any(name.startswith(CLIENT) for name in packages)


def test_all_packages_of_the_nvidia_driver_have_one_branch():
    """Pin all packages of the NVIDIA driver to one branch.

    Kernel modules, libraries and fabric manager of different versions do not work together.
    """
    for packages in defaults(toolkit_gpus=True):
        branches = {
            match
            for name in packages
            if "nvidia" in name
            for match in re.findall(r"-(\d{3})\b", name)
        }
        assert len(branches) == 1
        assert any(name.startswith("nvidia-fabricmanager-") for name in packages)
        assert any(name.startswith("nvidia-utils-") for name in packages)
        assert any(name.startswith(CLIENT) for name in packages)


A10G = "pci:v000010DEd00002237sv000010DEsd0000152Fbc03sc02i00"
NVSWITCH = "pci:v000010DEd000022A3sv000010DEsd00001796bc06sc80i00"
BRIDGE = "pci:v00008086d00001237sv00000000sd00000000bc06sc00i00"


def runs(service, tmp_path, *devices):
    """Check a unit's condition for an instance with these PCI devices."""
    for index, modalias in enumerate((BRIDGE, *devices)):
        device = tmp_path / f"pci0000:00/0000:00:{index:02}.0"
        device.mkdir(parents=True)
        (device / "modalias").write_text(modalias + "\n")
    text = (ROLE / f"files/{service}.conf").read_text(encoding="utf-8")
    (condition,) = re.findall(r"^ExecCondition=(.*)$", text, re.MULTILINE)
    command = [str(tmp_path) if word == "/sys/devices" else word for word in condition.split()]
    return subprocess.run(command, check=False).returncode == 0


@pytest.mark.parametrize(
    ("devices", "gpus", "fabric"),
    [((), False, False), ((A10G,), True, False), ((A10G, NVSWITCH), True, True)],
    ids=["cpu", "g5", "p5"],
)
def test_gpu_services_run_only_on_instances_with_their_devices(tmp_path, devices, gpus, fabric):
    """Start GPU services only on instances with the device of each service.

    Pools share one image. On instances without the device, a service would fail at every boot.
    """
    assert runs("nvidia-persistenced", tmp_path / "a", *devices) is gpus
    assert runs("nvidia-fabricmanager", tmp_path / "b", *devices) is fabric


@pytest.mark.parametrize(("kind", "files"), [("head", {"ssm.yml"}), ("compute", {"no_ssm.yml"})])
def test_the_ssm_agent_is_in_the_image_of_the_head_alone(kind, files):
    steps = YAML(typ="safe").load((ROLE / "tasks/install.yml").read_text(encoding="utf-8"))
    chosen = {
        step["ansible.builtin.include_tasks"]
        for step in steps
        if "ssm" in step.get("ansible.builtin.include_tasks", "")
        and NativeEnvironment().compile_expression(step["when"])(image_kind=kind)
    }
    assert chosen == files


def test_a_users_name_proves_no_signer():
    """Take the line that gpgv alone writes.

    In another line is a name that the maker of the key chose.
    """
    (check,) = (
        task
        for task in YAML(typ="safe").load((ROLE / "tasks/efa.yml").read_text())
        if task["name"] == "Check Amazon's signature"
    )
    assert "stdout is not search(ec2_efa_valid ~ ec2_efa_signer)" in check["failed_when"]
    defaults = YAML(typ="safe").load((ROLE / "defaults/main.yml").read_text())
    signer, other = defaults["ec2_efa_signer"], "0123456789ABCDEF" * 2 + "01234567"
    pattern = check["vars"]["ec2_efa_valid"] + signer
    name = "[GNUPG:] GOODSIG A05480B1DD2D3CCC {}\n[GNUPG:] VALIDSIG {} 2026-01-01\n"
    assert re.search(pattern, name.format("Amazon EC2 EFA", signer))
    assert not re.search(pattern, name.format(f"x VALIDSIG {signer}", other))
