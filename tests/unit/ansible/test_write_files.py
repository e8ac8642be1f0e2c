"""The action write_files, by itself and in a playbook."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from ansible.errors import AnsibleActionFail
from ruamel.yaml import YAML

ANSIBLE = Path(__file__).parents[3] / "ansible"
PLAYBOOK = Path(sys.executable).with_name("ansible-playbook")


@pytest.fixture(scope="module")
def action():
    path = ANSIBLE / "action_plugins/write_files.py"
    spec = importlib.util.spec_from_file_location("write_files", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def bits(path: Path) -> int:
    return path.stat().st_mode & 0o7777


def test_a_file_is_written_once_with_its_folders(action, tmp_path):
    path = tmp_path / "new/deep/file"
    assert action.write(path, b"text", {"mode": "0600"})
    assert (path.read_bytes(), bits(path), bits(path.parent)) == (b"text", 0o600, 0o755)
    assert not action.write(path, b"text", {"mode": "0600"})
    assert action.write(path, b"another", {})
    assert (path.read_bytes(), bits(path)) == (b"another", 0o644)
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("change", [{"mode": "0640"}, {"owner": "nobody"}, {"group": "nogroup"}])
def test_another_owner_or_mode_is_a_change(action, tmp_path, change):
    for make in (
        lambda entry: action.write(tmp_path / "file", b"text", entry),
        lambda entry: action.make_folder(tmp_path / "folder", entry),
    ):
        make({})
        assert make(change)
        assert not make(change)


def test_a_link_is_replaced_and_its_target_left_alone(action, tmp_path):
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("text")
    link.symlink_to(target)
    assert action.write(link, b"text", {})
    assert not link.is_symlink()
    assert action.write(link, b"other", {})
    assert target.read_text() == "text"


def test_a_writer_that_was_killed_does_not_stop_the_next(action, tmp_path):
    (tmp_path / ".file.new").write_text("half")
    assert action.write(tmp_path / "file", b"text", {})
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize(
    "entry",
    [
        {"dest": "/x"},
        {"source": "a", "content": "b", "dest": "/x"},
        {"source": "a"},
        {"directory": "/x", "dest": "/y"},
        {"content": "b", "dest": "/x", "mode": 0o644},
        {"content": "b", "dest": "/x", "modes": "0644"},
    ],
)
def test_a_wrong_entry_is_refused(action, entry):
    with pytest.raises(AnsibleActionFail):
        action.kind_of(entry)


@pytest.mark.parametrize("dest", ["x", "/x/"])
def test_a_path_that_is_not_a_files_is_refused(action, dest):
    with pytest.raises(AnsibleActionFail):
        action.path_of({"content": "b", "dest": dest}, "content")


@pytest.fixture
def play(tmp_path):
    """A function that runs a role with entries, and the role's folder."""
    role = tmp_path / "roles/role"
    for name in ("tasks", "templates", "files"):
        (role / name).mkdir(parents=True)
    (tmp_path / "action_plugins").symlink_to(ANSIBLE / "action_plugins")

    def run(*entries):
        tasks = [
            {"name": "Write", "write_files": {"files": list(entries)}, "register": "written"},
            {
                "name": "Keep",
                "write_files": {
                    "files": [{"content": "{{ written | to_json }}", "dest": f"{tmp_path}/result"}]
                },
            },
        ]
        yaml = YAML(typ="safe")
        with (role / "tasks/main.yml").open("w") as file:
            yaml.dump(tasks, file)
        play = {"hosts": "localhost", "gather_facts": False, "roles": ["role"]}
        with (tmp_path / "play.yml").open("w") as file:
            yaml.dump([play | {"vars": {"names": ["a", "b"], "first": "{{ names[0] }}"}}], file)
        argv = [PLAYBOOK, "--inventory", "localhost,", "--connection", "local", "play.yml"]
        done = subprocess.run(
            argv, cwd=tmp_path, capture_output=True, text=True, check=False, env=os.environ
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads((tmp_path / "result").read_text())

    return run, role


def test_a_playbook_writes_templates_files_and_texts_once(play, tmp_path):
    run, role = play
    (role / "templates/a.conf.j2").write_text(
        "# {{ ansible_managed }}\n"
        "{% for name in names %}\n{{ name }}\n{% endfor %}\nof {{ first }}\n"
    )
    (role / "files/raw").write_bytes(b"\0\xff")
    (tmp_path / "old").touch()
    entries = (
        {"directory": f"{tmp_path}/folder", "mode": "1777"},
        {"template": "a.conf.j2", "dest": f"{tmp_path}/folder/"},
        {"source": "raw", "dest": f"{tmp_path}/folder/sub/copy", "mode": "0600"},
        {"content": "{{ names | to_json }}\n", "dest": f"{tmp_path}/text"},
        "{{ {'absent': '" + f"{tmp_path}/old" + "'} }}",
    )
    first = run(*entries)
    assert first["changed"]
    assert len(first["paths"]) == len(entries)
    assert (tmp_path / "folder/a.conf").read_text() == "# Ansible managed\na\nb\nof a\n"
    assert (tmp_path / "folder/sub/copy").read_bytes() == b"\0\xff"
    assert (tmp_path / "text").read_text() == '["a", "b"]\n'
    assert not (tmp_path / "old").exists()
    again = run(*entries)
    assert (again["changed"], again["paths"]) == (False, [])
