"""A verdict is read as written, and the first one counts."""

import pytest

from toolkit.training.attempt import verdict


@pytest.mark.parametrize(
    ("word", "code"),
    [
        (verdict.done(5), 0),
        (verdict.resume(5, "spot-interruption"), 85),
        (verdict.hold(5, "no-progress", "why"), 93),
        (verdict.failed(5, "ValueError", 3), 3),
        (verdict.failed(5, "a script's own 85 asks Slurm for nothing", 85), 1),
    ],
)
def test_a_verdict_comes_back_as_it_was_written(tmp_path, word, code):
    word.write(tmp_path / "verdict.json")
    assert verdict.read(tmp_path / "verdict.json") == word
    assert word.exit_code == code


def test_of_several_failing_ranks_the_first_is_heard(tmp_path):
    path = tmp_path / "verdict.json"
    assert verdict.failed(5, "ValueError").write_first(path)
    assert not verdict.resume(5, "peer-lost").write_first(path)
    assert verdict.read(path).detail == "ValueError"
    assert [entry.name for entry in tmp_path.iterdir()] == ["verdict.json"]


@pytest.mark.parametrize("content", [b"", b"{}", b'{"verdict": "done"}', b"[]"])
def test_what_is_no_verdict_is_none(tmp_path, content):
    (tmp_path / "verdict.json").write_bytes(content)
    assert verdict.read(tmp_path / "verdict.json") is None
