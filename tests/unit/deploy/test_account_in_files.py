"""The AWS account of a cluster.yaml, by files and variables alone."""

from __future__ import annotations

import pytest

from tests.unit.deploy.samples import example
from toolkit.deploy.account_in_files import account_in_files, profile_of

A, B = "111122223333", "999988887777"


@pytest.fixture(autouse=True)
def aws(tmp_path, monkeypatch):
    """The folder of AWS's files; no variable names another."""
    for name in ("ACCESS_KEY_ID", "PROFILE", "DEFAULT_PROFILE", "ACCOUNT_ID"):
        monkeypatch.delenv(f"AWS_{name}", raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    return tmp_path


def cluster(boundary=None, **aws):
    config = example("aws")
    return config.model_copy(
        update={
            "aws": config.aws.model_copy(update=aws),
            "iam": config.iam.model_copy(update={"permissions_boundary": boundary}),
        }
    )


@pytest.mark.parametrize(
    "lines",
    [
        f"sso_account_id = {A}",
        f"aws_account_id = {A}",
        f"role_arn = arn:aws:iam::{A}:role/finance\nsource_profile = default",
        f"role_arn = arn:aws-us-gov:iam::{A}:role/x\naws_account_id = {B}\nsso_account_id = {B}",
    ],
)
def test_a_profile_may_say_its_account(aws, lines):
    (aws / "config").write_text(f"[default]\nsso_account_id = {B}\n[profile work]\n{lines}\n")
    assert account_in_files(cluster(profile="work")) == A
    assert account_in_files(cluster()) == B


def test_the_profile_of_cluster_yaml_comes_before_the_environments(aws, monkeypatch):
    (aws / "config").write_text(
        f"[profile work]\nsso_account_id={A}\n[profile home]\nsso_account_id={B}\n"
    )
    monkeypatch.setenv("AWS_PROFILE", "home")
    assert (account_in_files(cluster()), profile_of(cluster())) == (B, "home")
    assert account_in_files(cluster(profile="work")) == A


@pytest.mark.parametrize("variable", ["AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE"])
def test_credentials_in_the_environment_come_before_its_profile(aws, monkeypatch, variable):
    (aws / "config").write_text(f"[profile work]\nsso_account_id = {A}\n")
    monkeypatch.setenv("AWS_PROFILE", "work")
    monkeypatch.setenv(variable, "test")
    monkeypatch.setenv("AWS_ACCOUNT_ID", B)  # AWS asks no program to keep it true
    assert (account_in_files(cluster()), profile_of(cluster())) == ("", "")
    assert account_in_files(cluster(profile="work")) == A


def test_credentials_may_say_their_account(aws):
    (aws / "credentials").write_text(f"[work]\naws_access_key_id = x\naws_account_id = {A}\n")
    assert account_in_files(cluster(profile="work")) == A
    (aws / "others").write_text(f"[work]\naws_account_id = {B}\n")
    assert account_in_files(cluster(profile="work", credentials_file=str(aws / "others"))) == B


def test_a_permissions_boundary_is_of_the_clusters_account():
    assert account_in_files(cluster(f"arn:aws:iam::{A}:policy/limits")) == A
    assert not account_in_files(cluster("arn:aws:iam::aws:policy/PowerUserAccess"))


def test_the_local_cloud_has_an_account_of_its_own(aws):
    (aws / "config").write_text(f"[default]\nsso_account_id = {A}\n")
    assert not account_in_files(cluster(endpoint_url="http://127.0.0.1:4566"))


@pytest.mark.parametrize("text", ["", "[profile work\n", "[profile work]\nsso_account_id = 12\n"])
def test_files_that_say_nothing_are_no_error(aws, text):
    (aws / "config").write_text(text)
    assert not account_in_files(cluster(profile="work"))
    assert not account_in_files(cluster(profile="nobody"))
