"""Names stand for versions, and a numbered name keeps its version."""

import pytest

from tests.fakes.datasets import described
from toolkit.datasets.errors import DatasetUnknown, ManifestInvalid, NameRefused

ONE, TWO = described({"a": b"1"}), described({"a": b"2"})


def test_a_name_is_its_newest_version_and_a_number_keeps_its_version(catalog):
    catalog.set_name("digits", ONE.version)
    assert catalog.set_name("digits", ONE.version).reference == "digits@1"
    assert catalog.set_name("digits", TWO.version).reference == "digits@2"
    assert catalog.resolve("digits") == TWO.version
    assert catalog.resolve("digits@1") == ONE.version
    assert catalog.resolve(ONE.version) == ONE.version


def test_the_number_of_a_forgotten_version_is_not_used_again(catalog):
    catalog.set_name("digits", ONE.version)
    catalog.set_name("digits", TWO.version)
    catalog.forget("digits@2")
    assert catalog.resolve("digits") == ONE.version
    with pytest.raises(DatasetUnknown):
        catalog.resolve("digits@2")
    assert catalog.set_name("digits", TWO.version).number == 3


def test_two_set_names_at_once_get_two_numbers(catalog, store, monkeypatch):
    """Set the name twice at once.

    The first writer gets the number; the second reads the names again and takes the next number.
    """
    real, rivals = store.write_new, [ONE.version]

    def raced(key, content):
        if rivals:
            catalog.set_name("digits", rivals.pop())
        return real(key, content)

    monkeypatch.setattr(store, "write_new", raced)
    assert catalog.set_name("digits", TWO.version).reference == "digits@2"
    assert [one.version for one in catalog.named_versions("digits")] == [ONE.version, TWO.version]


@pytest.mark.parametrize(
    "reference",
    ["", "UPPER", "../x", "a/b", "a@0", "a@", "sha256:12", "a\n", "-a", "a b", "a@1@2", "é"],
)
def test_an_invalid_reference_is_refused(catalog, reference):
    with pytest.raises(NameRefused):
        catalog.resolve(reference)


@pytest.mark.parametrize("reference", ["absent", "absent@3"])
def test_an_absent_name_or_manifest_is_unknown(catalog, reference):
    with pytest.raises(DatasetUnknown):
        catalog.resolve(reference)
    with pytest.raises(DatasetUnknown):
        catalog.manifest(ONE.version)


def test_a_manifest_that_was_changed_in_the_store_is_refused(catalog, store):
    catalog.put_manifest(ONE)
    key = next(store.list("manifests/")).key
    store.write(key, TWO.encoded)
    with pytest.raises(ManifestInvalid):
        catalog.manifest(ONE.version)
