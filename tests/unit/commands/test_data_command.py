"""`toolkit data`: its output, its changes and its exit codes."""

import json

import pytest

from tests.fakes.datasets import write_tree
from toolkit import cli
from toolkit.datasets.filesystem import Disk


@pytest.fixture
def data(tmp_path, monkeypatch, capsys):
    """A function that runs `toolkit data` with these words.

    It returns the exit code, standard output and standard error.
    """
    monkeypatch.setattr(Disk, "sync", lambda self, folder: None)
    monkeypatch.setenv("TOOLKIT_DATA_STORE", str(tmp_path / "store"))
    monkeypatch.setenv("TOOLKIT_DATA_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("TOOLKIT_DATA_CACHE_GIB", "1")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TOOLKIT_RUN_DIR", str(tmp_path / "run"))

    def run(*words):
        code = cli.run(["data", *map(str, words)])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


@pytest.fixture
def root(tmp_path):
    return write_tree(tmp_path / "digits", {"a": b"1", "b/c": b"22"})


def files_of(store):
    return {path: path.read_bytes() for path in store.rglob("*") if path.is_file()}


def test_a_folder_is_added_verified_and_warmed_up(data, root):
    code, out, err = data("add", root, "--name", "digits")
    version = out.strip()
    assert (code, version[:7]) == (0, "sha256:")
    assert "digits@1" in err
    assert data("verify", "digits")[0] == 0
    assert data("warm", "digits", version)[0] == 0
    assert data("verify", "digits", "--cache")[0] == 0
    facts = json.loads(data("stats", "--json")[1])
    assert (facts["requests"], facts["hit_ratio"]) == (2, 0.5)
    assert "hit ratio 50%" in data("stats")[1]


def test_datasets_are_listed_and_shown(data, root):
    version = data("add", root, "--name", "digits")[1].strip()
    assert version in data("list")[1]
    (row,) = json.loads(data("list", "--json")[1])
    assert (row["name"], row["number"], row["tier"]) == ("digits", 1, "bronze")
    assert "b/c" in data("show", "digits", "--files")[1]
    description = json.loads(data("show", "digits@1", "--json")[1])
    assert (description["version"], description["files"], description["names"]) == (
        version,
        2,
        ["digits@1"],
    )


def test_dry_runs_change_nothing(data, root, tmp_path):
    assert "would be added" in data("add", root, "--name", "digits", "--dry-run")[1]
    assert not (tmp_path / "store").exists()
    data("add", root, "--name", "digits")
    data("add", write_tree(tmp_path / "lost", {"x": b"y"}))
    before = files_of(tmp_path / "store")
    assert "would delete 1 versions" in data("gc", "--dry-run", "--grace-hours", "0")[1]
    assert "would forget digits@1" in data("forget", "digits", "--dry-run")[1]
    assert "would mean" in data("name", "digits", "other", "--dry-run")[1]
    assert files_of(tmp_path / "store") == before


def test_deletions_require_yes(data, root, tmp_path):
    data("add", root, "--name", "digits")
    assert data("forget", "digits")[0] == 3
    assert data("gc", "--grace-hours", "0")[0] == 3
    assert data("forget", "digits", "--yes")[0] == 0
    code, out, _ = data("gc", "--grace-hours", "0", "--yes", "--json")
    assert (code, json.loads(out)["bytes"]) == (0, 3)
    assert not list((tmp_path / "store" / "objects").rglob("*/*"))


def test_verify_names_damaged_files_and_exits_with_1(data, root, tmp_path):
    data("add", root, "--name", "digits")
    for path in (tmp_path / "store" / "objects").rglob("*/*"):
        if path.read_bytes() == b"22":
            path.chmod(0o644)
            path.write_bytes(b"23")
    code, out, _ = data("verify", "digits")
    assert (code, "damaged: b/c" in out) == (1, True)
    assert data("warm", "digits")[0] == 93


@pytest.mark.parametrize(
    ("words", "code", "slug"),
    [
        (("show", "absent"), 1, "data-unknown"),
        (("show", "NO"), 2, "data-name-refused"),
        (("show", "x", "--store", "ftp://x"), 2, "data-name-refused"),
        (("forget", "absent", "--yes"), 1, "data-unknown"),
    ],
)
def test_an_expected_error_has_its_slug_and_exit_code(data, words, code, slug):
    exit_code, _, err = data(*words)
    assert (exit_code, f"[{slug}]" in err) == (code, True)


def test_adding_again_moves_the_name_and_keeps_older_numbers(data, root):
    first = data("add", root, "--name", "digits")[1].strip()
    (root / "a").write_bytes(b"changed")
    data("add", root, "--name", "digits")
    assert first in data("show", "digits@1")[1]
    assert first not in data("show", "digits@2")[1]
    assert "best@1" in data("name", "digits@1", "best")[1]


@pytest.fixture
def derive_louder(tmp_path, data, root):
    """A function that runs `toolkit data derive` with a real program.

    The program writes its input and `times` into the output. Its runs are counted.
    """
    data("add", root, "--name", "digits")
    script, runs = tmp_path / "louder.sh", tmp_path / "runs"
    script.write_text(
        f'echo run >> "{runs}"; cat "$1/a" > "$2/a"; echo "$3" >> "$2/a"; echo noise\n'
    )

    def run(*options, times="2"):
        command = ("bash", str(script), "{input}", "{output}", "{times}")
        return data(
            "derive", "--from", "digits", "--param", f"times={times}", *options, "--", *command
        )

    run.script, run.count = script, lambda: len(runs.read_text().split()) if runs.exists() else 0
    return run


def test_derive_runs_the_program_once_for_the_same_key(data, derive_louder):
    code, out, err = derive_louder("--name", "loud")
    version = out.strip()
    assert (code, version[:7], derive_louder.count()) == (0, "sha256:", 1)
    assert "silver, made" in err
    code, out, err = derive_louder()
    assert (code, out.strip(), derive_louder.count()) == (0, version, 1)
    assert "made before" in err
    assert "a" in data("show", "loud", "--files")[1]


def test_another_parameter_or_script_derives_again(derive_louder):
    derive_louder()
    derive_louder(times="3")
    derive_louder.script.write_text(derive_louder.script.read_text() + "# quicker\n")
    derive_louder()
    assert derive_louder.count() == 3


def test_derive_dry_run_says_if_the_program_would_run(derive_louder, tmp_path):
    before = files_of(tmp_path / "store")
    assert "would be made from sha256:" in derive_louder("--dry-run")[1]
    assert json.loads(derive_louder("--dry-run", "--json")[1])["found"] is None
    assert (derive_louder.count(), files_of(tmp_path / "store")) == (0, before)
    version = derive_louder()[1].strip()
    assert f"{version}: exists already" in derive_louder("--dry-run")[1]


def test_list_shows_tiers_and_inputs(data, derive_louder):
    version = derive_louder("--name", "loud")[1].strip()
    derive_louder(times="3")
    assert "silver" in data("list")[1]
    rows = json.loads(data("list", "--json", "--all")[1])
    assert [(row["name"], row["tier"], row["made_from"]) for row in rows] == [
        ("digits", "bronze", []),
        ("loud", "silver", ["digits@1"]),
        (None, "silver", ["digits@1"]),
    ]
    assert rows[1]["version"] == version
    assert '"times": 2' in data("show", "loud")[1]


def test_a_failing_program_stores_nothing_and_its_exit_code_is_printed(data, derive_louder):
    derive_louder.script.write_text("exit 7\n")
    code, _, err = derive_louder("--name", "loud")
    assert (code, "bash exited with 7" in err, "[data-build-failed]" in err) == (1, True, True)
    assert "loud" not in data("list")[1]


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("--from", "digits", "--", "true"), 1),  # the program's words name no file
        (("--from", "digits", "--param", "a b=1", "--", "true"), 2),
        (("--", "true"), 2),
    ],
)
def test_derive_refuses_missing_inputs_code_and_malformed_parameters(data, root, words, code):
    data("add", root, "--name", "digits")
    assert data("derive", *words)[0] == code
