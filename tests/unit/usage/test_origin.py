"""The owner of a store's records."""

from __future__ import annotations

import json

import pytest

from toolkit.usage import origin
from toolkit.usage.cluster_store import ClusterStore
from toolkit.usage.errors import OtherCluster

OURS, OTHERS = ("demo-111122223333-us-east-1-bak", "demo-999988887777-us-east-1-bak")


@pytest.fixture
def store(tmp_path):
    return ClusterStore(tmp_path / "demo")


def test_the_first_closing_says_whose_records_these_are(store):
    origin.keep(store, "us-east-1", OURS, "work", "111122223333")
    written = json.loads((store.folder / "origin.json").read_text())
    assert (written["region"], written["bucket"]) == ("us-east-1", OURS)
    assert origin.account_of(store, "work") == "111122223333"
    origin.keep(store, "us-east-1", OURS, "work", "111122223333")
    origin.check(store, "us-east-1")


def test_a_closing_of_another_account_changes_no_owner_and_is_remembered(store):
    origin.keep(store, "us-east-1", OURS, "work", "111122223333")
    with pytest.raises(OtherCluster, match=OTHERS):
        origin.keep(store, "us-east-1", OTHERS, "home", "999988887777")
    written = json.loads((store.folder / "origin.json").read_text())
    assert written["bucket"] == OURS
    assert origin.account_of(store, "home") == "999988887777"


def test_a_profile_that_changes_its_account_is_remembered_anew(store):
    origin.keep(store, "us-east-1", OURS, "work", "111122223333")
    with pytest.raises(OtherCluster):
        origin.keep(store, "us-east-1", OTHERS, "work", "999988887777")
    assert origin.account_of(store, "work") == "999988887777"


def test_keys_in_the_environment_are_no_profile(store):
    origin.keep(store, "us-east-1", OURS, "", "111122223333")
    assert not origin.account_of(store, "")
    assert not origin.is_of_other_profiles(store, "")
    origin.keep(store, "us-east-1", OURS, "work", "111122223333")
    assert origin.is_of_other_profiles(store, "")


def test_a_store_without_an_owner_is_anybodys(store):
    origin.check(store, "us-east-1", OURS)
    assert not origin.account_of(store, "work")
    assert not origin.is_of_other_profiles(store, "work")
