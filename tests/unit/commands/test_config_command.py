"""`toolkit config`, and the search of every command for cluster.yaml."""

import json
from pathlib import Path

import pytest

from toolkit import cli
from toolkit.commands.options import find_config_file
from toolkit.errors import ConfigNotFound

EXAMPLE = Path(__file__).parents[3] / "examples" / "local.yaml"


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TOOLKIT_CONFIG", raising=False)


def test_the_config_option_wins_over_the_environment_and_that_over_the_folder(
    tmp_path, monkeypatch
):
    """Prefer --config to TOOLKIT_CONFIG, and TOOLKIT_CONFIG to ./cluster.yaml."""
    with pytest.raises(ConfigNotFound):
        find_config_file(None)
    Path("cluster.yaml").touch()
    assert find_config_file(None) == Path("cluster.yaml")
    monkeypatch.setenv("TOOLKIT_CONFIG", "other.yaml")
    assert find_config_file(None) == Path("other.yaml")
    assert find_config_file(Path("given.yaml")) == Path("given.yaml")


@pytest.mark.parametrize("kind", [[], ["local"], ["aws"], ["join"]])
def test_config_init_writes_a_valid_commented_cluster_yaml(kind, capsys):
    """Write the example configuration that other tests use as well."""
    assert cli.run(["config", "init", *kind]) == 0
    text = Path("cluster.yaml").read_text()
    assert text == EXAMPLE.with_name(f"{kind[0] if kind else 'local'}.yaml").read_text()
    assert text.count("#") > 5
    assert "examples/" not in text, "its reader may have no checkout"
    assert cli.run(["config", "check"]) == 0
    assert "good" in capsys.readouterr().out


def test_config_init_keeps_an_existing_cluster_yaml_unless_forced(capsys):
    """Exit with code 2 and leave the file unchanged."""
    Path("cluster.yaml").write_text("mine")
    assert cli.run(["config", "init"]) == 2
    assert "[config-exists]" in capsys.readouterr().err
    assert Path("cluster.yaml").read_text() == "mine"
    assert cli.run(["config", "init", "--force"]) == 0
    assert Path("cluster.yaml").read_text() == EXAMPLE.read_text()


def test_config_init_dry_run_prints_the_file_and_writes_nothing(capsys):
    assert cli.run(["config", "init", "aws", "--dry-run"]) == 0
    assert capsys.readouterr().out == EXAMPLE.with_name("aws.yaml").read_text()
    assert list(Path.cwd().iterdir()) == []


def test_config_init_writes_to_the_configured_path(monkeypatch, capsys):
    """Write to the path of --config, then of TOOLKIT_CONFIG.

    The error names a missing folder.
    """
    assert cli.run(["config", "init", "--config", "given.yaml"]) == 0
    monkeypatch.setenv("TOOLKIT_CONFIG", "named.yaml")
    assert cli.run(["config", "init"]) == 0
    assert sorted(path.name for path in Path.cwd().iterdir()) == ["given.yaml", "named.yaml"]
    assert cli.run(["config", "init", "--config", "absent/x.yaml"]) == 2
    assert "absent/x.yaml can't be written" in capsys.readouterr().err


def test_config_check_reports_problems_as_json(capsys):
    """Exit with code 2 and list each problem with its line.

    Editors and CI read the list.
    """
    Path("cluster.yaml").write_text(EXAMPLE.read_text().replace("count: 4", "count: none"))
    assert cli.run(["config", "check", "--json"]) == 2
    (problem,) = json.loads(capsys.readouterr().out)["problems"]
    assert problem["path"] == "pools.gpu.count"
    assert (
        "count: none"
        in EXAMPLE.read_text().replace("count: 4", "count: none").splitlines()[problem["line"] - 1]
    )


def test_config_check_accepts_a_valid_file(capsys):
    """Exit with code 0 and print the largest size of the cluster."""
    assert cli.run(["config", "check", "--config", str(EXAMPLE)]) == 0
    assert "up to 4 nodes" in capsys.readouterr().out


def test_config_check_and_show_take_a_join(capsys):
    """Check its keys alone, since its slurm.conf is the site's."""
    config = ["--config", str(EXAMPLE.with_name("join.yaml"))]
    assert cli.run(["config", "check", "--json", *config]) == 0
    assert json.loads(capsys.readouterr().out) == {"valid": True, "problems": [], "findings": []}
    assert cli.run(["config", "check", "--slurm-conf", __file__, *config]) == 2
    assert "give --slurm-conf with --slurm-version" in capsys.readouterr().err
    assert cli.run(["config", "show", *config]) == 0
    assert json.loads(capsys.readouterr().out)["kind"] == "join"


def test_config_show_prints_every_default(capsys):
    """Print the defaults of missing keys as JSON."""
    assert cli.run(["config", "show", "--config", str(EXAMPLE)]) == 0
    assert json.loads(capsys.readouterr().out)["slurm"]["suspend_timeout"] == 60


def test_config_schema_prints_json(capsys):
    """Print the JSON schema that an editor needs."""
    assert cli.run(["config", "schema"]) == 0
    assert json.loads(capsys.readouterr().out)["title"] == "cluster.yaml"


def test_config_check_refuses_a_setting_that_loses_nodes(capsys):
    """Exit with code 2 and print the finding.

    A finding has the line in the rendered slurm.conf, the fix and the source.
    """
    text = EXAMPLE.read_text().replace("settings: {}", "settings: {ReturnToService: 0}")
    Path("cluster.yaml").write_text(text)
    assert cli.run(["config", "check", "--json"]) == 2
    (finding,) = json.loads(capsys.readouterr().out)["findings"]
    assert finding["slug"] == "return-to-service"
    assert finding["fix"] == "ReturnToService=2"
    assert cli.run(["config", "check"]) == 2
    assert "see: https://" in capsys.readouterr().out


def test_config_check_reads_a_foreign_slurm_conf_without_a_cluster_yaml(capsys):
    """Check a slurm.conf that the toolkit did not render."""
    Path("slurm.conf").write_text("MaxBatchRequeue=5\nRequeueExit=85\nJobRequeue=0\n")
    argv = ["config", "check", "--slurm-conf", "slurm.conf", "--slurm-version", "25.11"]
    assert cli.run(argv) == 2
    out = capsys.readouterr().out
    assert "error: line 3: JobRequeue" in out
    assert cli.run([*argv[:-1], "19.05"]) == 2


def test_config_check_exits_with_0_on_warnings(capsys):
    """Exit with code 0 and print the warning."""
    text = EXAMPLE.read_text().replace("settings: {}", "settings: {KillWait: 10}")
    Path("cluster.yaml").write_text(text)
    assert cli.run(["config", "check"]) == 0
    assert "warning: line" in capsys.readouterr().out
