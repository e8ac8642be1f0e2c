"""The files that detect-secrets gets."""

import pytest

from tests.house import secrets

KEY = "AKIA" + "QWERTYUIOPASDFGH"
RANDOM = "0aB9" * 10


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.py", f"key = '{KEY}'\n"),
        ("a.md", f"no setting\n\n  {KEY}   \n"),
        ("a.txt", "-----BEGIN RSA " + "PRIVATE KEY-----\n"),
        ("a.yaml", f"aws:\n  aws_secret_access_key: {RANDOM}\n"),
        ("a.ini", f"[aws]\naws_secret_access_key = {RANDOM}\n"),
    ],
)
def test_a_file_with_a_key_is_one_of_them(tmp_path, name, text):
    path = tmp_path / name
    path.write_text(text)
    (tmp_path / "other.py").write_text(f"key = '{KEY[:-1]}'\n")
    files = [str(tmp_path / "other.py"), str(path)]
    assert list(secrets.candidates(files)) == [str(path)]


@pytest.mark.parametrize("kind", ["RSA", "OPENSSH", "EC"])
def test_a_private_key_fails_lint(tmp_path, monkeypatch, kind):
    path = tmp_path / "key"
    path.write_text(f"-----BEGIN {kind} " + "PRIVATE KEY-----\n")
    monkeypatch.setattr("sys.argv", ["secrets", str(path)])
    monkeypatch.chdir(tmp_path)
    assert secrets.main() == 1


def test_a_file_that_is_no_text_is_none_of_them(tmp_path):
    (tmp_path / "a").write_bytes(b"\xff\xfe" + KEY.encode())
    assert list(secrets.candidates([str(tmp_path / "a")])) == []
