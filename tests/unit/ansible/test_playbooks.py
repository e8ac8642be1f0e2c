"""Agreement of the playbooks and roles with each other and the toolkit."""

import ast
import re
from pathlib import Path

import pytest
from jinja2 import Environment, StrictUndefined
from ruamel.yaml import YAML

from slurmplugins.model import data_volume
from toolkit.deploy.ingress import SWEEPS_PORT

ROOT = Path(__file__).parents[3]
ANSIBLE = ROOT / "ansible"
NOT_ON_A_HEAD = ("install.yml", "publish.yml")
FILES = sorted(ANSIBLE.rglob("*.yml"))


def load_yaml(path):
    return YAML(typ="safe").load(path.read_text(encoding="utf-8"))


def tasks(items):
    """Return every task of a play or file, with blocks unfolded."""
    for item in items or []:
        for part in ("tasks", "pre_tasks", "post_tasks", "handlers", "block", "rescue", "always"):
            yield from tasks(item.get(part))
        yield item


def written(steps):
    """Return the entries of each write_files with the number of its step."""
    for at, step in enumerate(steps):
        for entry in step.get("write_files", {}).get("files", []):
            if isinstance(entry, dict):
                yield at, entry


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ANSIBLE)))
def test_playbooks_use_builtin_modules_and_no_shell(path):
    """Use only builtin modules and write_files, and pass nothing through a shell.

    So the playbooks need no Ansible collection.
    """
    if path.name in {"inventory.yml", "all.yml"} or "defaults" in path.parts:
        return
    for task in tasks(load_yaml(path)):
        modules = {key for key in task if "." in key}
        assert all(name.startswith("ansible.builtin.") for name in modules)
        assert not modules & {"ansible.builtin.shell", "ansible.builtin.raw"}
        command = task.get("ansible.builtin.command")
        assert command is None or set(command) <= {"argv", "stdin"}, "argv, not a command line"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ANSIBLE)))
def test_each_file_that_is_written_has_its_source_in_the_role(path):
    if path.name in {"inventory.yml", "all.yml"} or "defaults" in path.parts:
        return
    for _, entry in written(tasks(load_yaml(path))):
        for kind, folder in (("source", "files"), ("template", "templates")):
            name = entry.get(kind, "")
            if name and "{{" not in name and not name.startswith("/"):
                assert (path.parents[1] / folder / name).is_file(), entry


def test_every_role_of_an_image_has_an_install_file():
    for kind, roles in load_yaml(ANSIBLE / "group_vars/all.yml")["toolkit_roles"].items():
        for role in roles:
            assert (ANSIBLE / f"roles/{role}/tasks/install.yml").exists(), f"{kind}: {role}"


def test_a_head_has_its_runtime_published_once_before_any_role_asks_whether_it_changed():
    """Publish it once: a second time would find nothing to do."""
    roles = [role["role"] for role in load_yaml(ANSIBLE / "site.yml")[1]["roles"]]
    texts = {role: role_text(role) for role in roles}
    publishing = [role for role in roles if "publish.yml" in texts[role]]
    asking = [role for role in roles if "burst_published is changed" in texts[role]]
    assert len(publishing) == 1
    assert {"mlflow", "optuna", "logs"} <= set(asking)
    assert min(map(roles.index, asking)) >= roles.index(publishing[0])


def role_text(role: str) -> str:
    """Return what a head with an image runs of the role."""
    files = (ANSIBLE / f"roles/{role}/tasks").glob("*.yml")
    return "".join(path.read_text() for path in files if path.name not in NOT_ON_A_HEAD)


def test_mariadb_slurmdbd_and_slurmctld_are_configured_in_this_order():
    """Configure slurmdbd before slurmctld.

    A slurmctld that starts without slurmdbd takes a cluster id that slurmdbd refuses later.
    """
    plays = load_yaml(ANSIBLE / "site.yml")
    roles = [role["role"] for role in plays[1]["roles"]]
    services = ["mariadb", "slurm_auth", "slurmdbd", "slurmctld"]
    assert [role for role in roles if role in services] == services


def test_the_identity_file_is_in_the_state_folder_and_copied_before_slurmctld_starts():
    """Keep the identity file together with slurmctld's job numbers.

    A new identity is made only when the numbers of the jobs are lost.
    """
    steps = load_yaml(ANSIBLE / "roles/slurmctld/tasks/configure.yml")
    copies = [step.get("ansible.builtin.copy", {}) for step in steps]
    (minted,) = (at for at, copy in enumerate(copies) if "password" in copy.get("content", ""))
    (published,) = (
        (at, entry) for at, entry in written(steps) if entry.get("dest", "").endswith("/slurm-id")
    )
    assert copies[minted]["force"] is False
    state = re.search(
        r'"StateSaveLocation": "(.+)"', (ROOT / "toolkit/render/settings.py").read_text()
    )
    assert copies[minted]["dest"] == published[1]["source"] == f"{state[1]}/toolkit-id"
    first_flush = next(at for at, step in enumerate(steps) if "ansible.builtin.meta" in step)
    assert minted < published[0] < first_flush
    assert "/shared/.toolkit/slurm-id" in (ROOT / "jobscripts/lib/preflight.sh").read_text()


def test_slurmd_runs_only_what_every_node_has_before_slurm_conf_names_it():
    """Keep slurmd's programs off the image.

    slurmd drains a node whose Prolog is absent, and slurmstepd fails its tasks: run_command in
    src/common/run_command.c. slurm.conf reaches nodes of older images too.
    """
    steps = load_yaml(ANSIBLE / "roles/slurmctld/tasks/configure.yml")
    entries = list(written(steps))
    sources = [Path(entry.get("source", "")).name for _, entry in entries]
    hooks = {
        Path(entry["source"]).name: entry
        for _, entry in entries[: sources.index("slurm.conf")]
        if entry["dest"] == "{{ toolkit_shared }}/.toolkit/hooks/"
    }
    for golden in (ROOT / "tests/golden/render/expected").glob("*/slurm.conf"):
        named = re.findall(r"(?m)^(?:Task)?(?:Prolog|Epilog)=(.+)$", golden.read_text())
        containers = golden.with_name("job_container.conf").read_text()
        named += re.findall(r"InitScript=(\S+)", containers)
        assert len(named) == 4
        for path in named:
            folder, _, name = path.rpartition("/")
            assert folder == "/shared/.toolkit/hooks"
            assert hooks[name]["mode"] == "0755"
            assert (ANSIBLE / "roles/slurmctld/files/hooks" / name).stat().st_mode & 0o111


def test_the_head_boots_without_waiting_for_its_data_volume():
    """Order nothing of the early boot after the mount.

    EC2 may attach the volume later. Without `nofail` a local mount comes before local-fs.target,
    and so before the network and the SSM agent (systemd.mount(5)). What needs the volume says so.
    """
    role = ANSIBLE / "roles/head_data"
    unit = (role / "templates/srv-head.mount.j2").read_text()
    (options,) = re.findall(r"(?m)^Options=(.+)$", unit)
    assert "nofail" in options.split(",")
    assert re.findall(r"(?m)^WantedBy=(.+)$", unit) == ["multi-user.target"]
    assert "RequiresMountsFor=/srv/head" in (role / "files/needs-volume.conf").read_text()


def test_the_free_space_is_measured_where_the_data_volume_is_mounted():
    assert load_yaml(ANSIBLE / "group_vars/all.yml")["toolkit_head_data"] == data_volume.PATH


def test_no_head_runs_the_distributions_sshd():
    """Mask it at each apply: a base image may have enabled it."""
    tasks_of_role = ANSIBLE / "roles/users/tasks"
    (step,) = load_yaml(tasks_of_role / "distribution.yml")
    service = step["ansible.builtin.systemd_service"]
    assert (service["masked"], service["state"]) == (True, "stopped")
    assert step["loop"] == ["ssh.socket", "ssh.service"]
    for name in ("install.yml", "sshd.yml"):  # in the image, and at each apply
        steps = load_yaml(tasks_of_role / name)
        assert any(step.get("ansible.builtin.import_tasks") == "distribution.yml" for step in steps)
    main = load_yaml(tasks_of_role / "main.yml")
    assert [step["name"] for step in main if "when" not in step] == ["Configure"]


def test_no_playbook_adds_the_cluster_to_slurmdbd():
    """Leave registration to slurmctld.

    A cluster that was added beforehand fails with CLUSTER ID MISMATCH.
    """
    for path in FILES:
        assert not re.search(r"add,?\s+cluster", path.read_text(encoding="utf-8"))


def test_every_program_of_slurm_conf_and_the_units_has_a_wrapper_with_a_main():
    """Give each named program a wrapper with a main in slurmplugins.

    slurm.conf and the systemd units name the programs.
    """
    files = ANSIBLE / "roles/burst/files"
    wrappers = {path.name: path.read_text() for path in (files / "bin").iterdir()}
    hooks = {path.name for path in (ANSIBLE / "roles/slurmctld/files/hooks").iterdir()}
    programs = {
        match
        for path in [ROOT / "toolkit/render/settings.py", *(ANSIBLE / "roles").rglob("*.service*")]
        for match in re.findall(r"/(slurm-[a-z-]+)\b", path.read_text())
        if match != "slurm-toolkit"
    }
    assert programs <= set(wrappers) | hooks
    for text in wrappers.values():
        assert text.startswith("#!/usr/bin/python3 -I\n")
        (module,) = re.findall(r"from slurmplugins\.(\w+) import main", text)
        tree = ast.parse((ROOT / f"slurmplugins/{module}.py").read_text())
        assert any(isinstance(node, ast.FunctionDef) and node.name == "main" for node in tree.body)


def test_no_configuration_file_contains_a_password():
    """Connect to MariaDB without a password.

    MariaDB knows its clients by the socket, so no password can leak.
    """
    text = (ROOT / "templates/slurm/slurmdbd.conf.j2").read_text()
    assert "StoragePass" not in text
    assert "unix_socket" in (ANSIBLE / "roles/mariadb/templates/databases.sql.j2").read_text()


def test_the_sweep_service_its_clients_and_the_security_group_use_one_port():
    """Use one port for sweep service, clients and security group."""
    service = load_yaml(ANSIBLE / "roles/optuna/defaults/main.yml")["optuna_port"]
    sweep_port = load_yaml(ANSIBLE / "roles/mlflow/defaults/main.yml")["mlflow_sweep_port"]
    assert service == sweep_port == SWEEPS_PORT
    assert f"port: {service}\n" in (ANSIBLE / "verify.yml").read_text()


def test_every_service_with_a_database_has_one_in_mariadb():
    """Give each service a database that its system user may open.

    MariaDB lets a system user into its own database.
    """
    databases = load_yaml(ANSIBLE / "roles/mariadb/defaults/main.yml")["mariadb_databases"]
    for role in ("mlflow", "optuna"):
        database = load_yaml(ANSIBLE / f"roles/{role}/defaults/main.yml")[f"{role}_database"]
        assert databases[role] == database


def masked_units(*files):
    """Return the units that these task files mask."""
    masks = [
        task
        for file in files
        for task in tasks(load_yaml(ANSIBLE / file))
        if task.get("ansible.builtin.systemd_service", {}).get("masked")
    ]
    return {unit for task in masks for unit in task.get("loop", [])}


def test_no_image_updates_packages_by_itself():
    """Mask what runs apt on a timer.

    An update restarts daemons under jobs.
    """
    assert masked_units("roles/base/tasks/updates.yml") >= {
        "apt-daily.timer", "apt-daily-upgrade.timer", "unattended-upgrades.service"
    }  # fmt: skip
    needrestart = (ANSIBLE / "roles/base/files/needrestart.conf").read_text()
    assert "$nrconf{restart} = 'l';" in needrestart


def test_the_compute_image_starts_no_sshd():
    assert masked_units("roles/slurmd/tasks/install.yml") >= {"ssh.socket", "ssh.service"}
    packages = load_yaml(ANSIBLE / "group_vars/all.yml")["toolkit_packages"]["compute"]
    assert "openssh-server" not in {name for names in packages.values() for name in names}


def test_slurmdbd_hides_the_same_data_as_slurmctld():
    """Render PrivateData into slurmdbd.conf.

    sacct asks slurmdbd, which does not read slurm.conf.
    """
    text = (ROOT / "templates/slurm/slurmdbd.conf.j2").read_text()
    jinja = Environment(undefined=StrictUndefined, autoescape=True)
    template = jinja.from_string(text)
    facts = {"ansible_managed": "", "toolkit_head_hostname": "x", "slurmdbd_database": "x"}
    assert "PrivateData" not in template.render(facts, toolkit_private_data=[])
    rendered = template.render(facts, toolkit_private_data=["usage", "users"])
    assert "\nPrivateData=usage,users\n" in rendered
