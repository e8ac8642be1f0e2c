"""The commit of a run's code comes from the best source."""

from toolkit.training.reproduce import git_commit


def test_the_commit_comes_from_who_knows_it_best(tmp_path):
    script = tmp_path / "digits" / "train.py"
    script.parent.mkdir()
    script.write_text("print()")
    assert "mlflow.source.git.commit" not in git_commit.code_of(script, {}).tags()
    (tmp_path / "GIT_SHA").write_text("abc123+dirty\n")
    tags = git_commit.code_of(script, {}).tags()
    assert (tags["mlflow.source.git.commit"], tags["toolkit.git_dirty"]) == ("abc123", "true")
    tags = git_commit.code_of(script, {"TOOLKIT_GIT_SHA": "def"}).tags()
    assert (tags["mlflow.source.git.commit"], tags["toolkit.git_dirty"]) == ("def", "false")
