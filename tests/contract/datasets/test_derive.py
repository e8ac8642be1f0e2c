"""Derived data: made once for each key, with its origin on record.

The key is made of inputs, code and parameters.
"""

import os
import threading
from pathlib import Path

import pytest

from tests.fakes.datasets import tree, write_tree
from toolkit.datasets.dataset import hold_dataset
from toolkit.datasets.derive import lineage
from toolkit.datasets.derive.derive import code_hash, derived, key_of
from toolkit.datasets.errors import BuildFailed, DataError, DatasetUnknown
from toolkit.datasets.settings import DatasetSettings
from toolkit.datasets.store.add import add
from toolkit.datasets.store.catalog import Catalog, Derivation
from toolkit.datasets.store.folder_store import FolderStore

pytestmark = pytest.mark.usefixtures("no_syncing")


@pytest.fixture
def no_syncing(monkeypatch):
    """A real disk without syncs, which wait for other processes' writes."""
    from toolkit.datasets.filesystem import Disk

    monkeypatch.setattr(Disk, "sync", lambda self, folder: None)


@pytest.fixture
def settings(tmp_path):
    return DatasetSettings(
        store=str(tmp_path / "store"), cache_folder=tmp_path / "cache", cache_limit=1 << 20
    )


@pytest.fixture
def catalog(settings):
    return open_catalog(settings)


def open_catalog(settings):
    return Catalog(FolderStore(Path(settings.store)))


@pytest.fixture
def raw(catalog, tmp_path):
    return add(catalog, write_tree(tmp_path / "raw", {"x": b"abc", "y": b"de"}), name="raw").version


@pytest.fixture
def build():
    """A build that returns its files in capitals, and records its calls."""

    class Build:
        def __init__(self) -> None:
            self.runs = []

        def __call__(self, inputs, output, params) -> None:
            self.runs.append(params)
            for folder in inputs:
                for name, data in tree(folder).items():
                    (output / name).write_bytes(data.upper() * params.get("times", 1))

    return Build()


@pytest.fixture
def code(tmp_path):
    path = tmp_path / "prepare.py"
    path.write_text("upper()")
    return path


def test_a_second_derivation_of_the_same_key_reuses_the_first_result(settings, raw, build, code):
    first = derived(["raw"], build, code=[code], where=settings)
    second = derived([raw], build, code=[code], where=settings)
    assert (first.reused, second.reused, len(build.runs)) == (False, True, 1)
    assert first.version == second.version
    held = hold_dataset(first.version, settings)
    assert tree(held.path) == {"x": b"ABC", "y": b"DE"}
    held.release()


def test_another_input_code_or_parameter_makes_another_key(settings, raw, build, code, tmp_path):
    keys = {derived([raw], build, code=[code], where=settings).derivation.key}
    keys.add(derived([raw], build, code=[code], params={"times": 2}, where=settings).derivation.key)
    other = add(open_catalog(settings), write_tree(tmp_path / "other", {"x": b"abc"})).version
    keys.add(derived([other], build, code=[code], where=settings).derivation.key)
    code.write_text("upper()  # faster")
    keys.add(derived([raw], build, code=[code], where=settings).derivation.key)
    assert len(keys) == len(build.runs) == 4


def test_a_failed_build_stores_nothing_and_the_next_one_may_succeed(settings, raw, build, code):
    def broken(inputs, output, params):
        (output / "half").write_text("done")
        raise ZeroDivisionError

    with pytest.raises(BuildFailed, match="ZeroDivisionError"):
        derived([raw], broken, code=[code], where=settings)
    catalog = Catalog(FolderStore(Path(settings.store)))
    assert catalog.derivations() == []
    assert len(list(catalog.store.list("manifests/"))) == 1
    assert not list(Path(settings.store).glob("building/*.work"))
    assert not derived([raw], build, code=[code], where=settings).reused


def test_a_build_that_writes_nothing_has_failed(settings, raw, code):
    with pytest.raises(BuildFailed):
        derived([raw], lambda *_: None, code=[code], where=settings)


def test_files_of_a_killed_build_are_not_part_of_the_result(settings, raw, build, code):
    key = key_of([raw], code_hash([code]), {})
    write_tree(
        Path(settings.store) / "building" / f"{key}.{os.getuid()}.work" / "dead", {"half": b"x"}
    )
    result = derived([raw], build, code=[code], where=settings)
    assert set(tree(hold_dataset(result.version, settings).path)) == {"x", "y"}


def test_concurrent_derivations_of_one_key_build_once(settings, raw, build, code):
    results = []

    def derive_again():
        results.append(derived([raw], build, code=[code], where=settings))

    threads = [threading.Thread(target=derive_again) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(build.runs) == 1
    assert sorted(one.reused for one in results) == [False, True, True]


def test_the_first_of_two_nodes_results_counts_for_both(settings, catalog, raw, code, tmp_path):
    """Use two locks: each node has its own for S3."""
    code_digest = code_hash([code])
    key = key_of([raw], code_digest, {})
    first = add(catalog, write_tree(tmp_path / "first", {"x": b"first"})).version

    def build(inputs, output, params):
        catalog.put_derivation(Derivation(key, first, (raw,), code_digest, {}, "silver", 1.0))
        (output / "x").write_bytes(b"second")

    result = derived([raw], build, code=[code], where=settings, name="made")
    assert (result.version, result.reused) == (first, True)
    assert catalog.resolve("made") == first
    assert [item.output for item in catalog.derivations()] == [first]


def test_the_tier_of_a_derived_dataset_follows_from_its_inputs(settings, catalog, raw, build, code):
    silver = derived([raw], build, code=[code], where=settings)
    gold = derived([silver.version], build, code=[code], where=settings, name="gold")
    stated = derived([raw, silver.version], build, code=[code], where=settings, tier="silver")
    tiers = [one.derivation.tier for one in (silver, gold, stated)]
    assert tiers == ["silver", "gold", "silver"]


def test_lineage_shows_the_inputs_and_the_uses_of_a_dataset(settings, catalog, raw, build, code):
    silver = derived([raw], build, code=[code], where=settings, params={"times": 2})
    gold = derived([silver.version], build, code=[code], where=settings, name="gold")
    lineage_of_gold = lineage.describe(catalog, "gold")
    assert (lineage_of_gold.version, lineage_of_gold.tier, lineage_of_gold.names) == (
        gold.version,
        "gold",
        ("gold@1",),
    )
    assert [one.output for one in lineage_of_gold.made] == [gold.version, silver.version]
    text = "\n".join(lineage.description_lines(lineage_of_gold))
    assert raw in text
    assert '{"times": 2}' in text
    assert [one.output for one in lineage.describe(catalog, raw).used_by] == [silver.version]


def test_a_derived_dataset_that_was_garbage_collected_is_built_again(
    settings, catalog, raw, build, code
):
    result = derived([raw], build, code=[code], where=settings)
    catalog.store.delete([f"manifests/{result.version[7:]}.json"])
    assert derived([raw], build, code=[code], where=settings).version == result.version
    assert len(build.runs) == 2


def test_the_code_of_a_derivation_is_by_default_the_file_of_the_build_function(settings, raw):
    def copy(inputs, output, params):
        (output / "x").write_bytes(b"1")

    assert derived([raw], copy, where=settings).derivation.code == code_hash([Path(__file__)])


def test_code_hash_covers_names_and_content_of_a_folder_without_bytecode(tmp_path):
    write_tree(tmp_path / "code", {"a.py": b"1", "sub/b.py": b"2"})
    before = code_hash([tmp_path / "code"])
    write_tree(tmp_path / "code", {"__pycache__/a.pyc": b"3"})
    assert code_hash([tmp_path / "code"]) == before
    (tmp_path / "code" / "a.py").rename(tmp_path / "code" / "c.py")
    assert code_hash([tmp_path / "code"]) != before


def test_derived_refuses_parameters_inputs_and_code_that_make_no_key(
    settings, raw, build, code, tmp_path
):
    for params in ({"x": float("nan")}, {"x": object()}):
        with pytest.raises(DataError):
            derived([raw], build, code=[code], params=params, where=settings)
    with pytest.raises(DatasetUnknown):
        derived(["sha256:" + "0" * 64], build, code=[code], where=settings)
    with pytest.raises(DataError):
        derived([raw], build, code=[tmp_path / "absent"], where=settings)
