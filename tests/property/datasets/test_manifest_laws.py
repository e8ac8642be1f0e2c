"""Laws of a manifest's canonical form.

The same files give the same bytes, and the same bytes give the same files.
"""

import hashlib
import json
import random

import pytest
from hypothesis import assume, given, strategies as st

from toolkit.datasets import chunks
from toolkit.datasets.errors import DataError, ManifestInvalid, NameRefused
from toolkit.datasets.store.manifest import File, check_path, make_manifest, parse, version_of

REFUSED = ("Cc", "Cs", "Zl", "Zp")
PARTS = st.text(st.characters(exclude_categories=REFUSED, exclude_characters="/"), min_size=1)
PATHS = st.lists(PARTS.filter(lambda part: part not in (".", "..")), min_size=1, max_size=4)


def make_file(path, size):
    hashes = [
        hashlib.sha256(f"{size}/{at}".encode()).hexdigest() for at in range(chunks.count(size))
    ]
    return File(path, size, tuple(hashes))


@st.composite
def manifests(draw):
    sizes = st.sampled_from([0, 1, chunks.CHUNK, chunks.CHUNK + 1, 5 * chunks.CHUNK])
    paths = draw(st.lists(PATHS.map("/".join), unique=True, max_size=5))
    folders = {path[:at] for path in paths for at, one in enumerate(path) if one == "/"}
    return make_manifest(make_file(path, draw(sizes)) for path in paths if path not in folders)


def is_accepted(path):
    try:
        check_path(path)
    except NameRefused:
        return False
    return True


@given(manifests())
def test_a_manifest_is_parsed_as_it_was_encoded(manifest):
    assert parse(manifest.encoded, manifest.version) == manifest


@given(manifests(), st.randoms(use_true_random=False))
def test_the_order_of_the_files_does_not_change_a_manifest(manifest, order: random.Random):
    shuffled = list(manifest.files)
    order.shuffle(shuffled)
    assert make_manifest(shuffled).encoded == manifest.encoded


@given(manifests(), st.sampled_from(["indent", "unsorted", "space"]))
def test_another_encoding_of_the_same_files_is_refused(manifest, form):
    """Refuse other bytes, which would be a second version of the dataset."""
    value = json.loads(manifest.encoded)
    if form == "indent":
        other = json.dumps(value, indent=1, sort_keys=True).encode()
    elif form == "unsorted":
        other = json.dumps(dict(reversed(value.items())), separators=(",", ":")).encode() + b"\n"
    else:
        other = manifest.encoded + b" "
    assume(other != manifest.encoded)
    with pytest.raises(ManifestInvalid):
        parse(other, version_of(other))


@given(st.binary(max_size=300))
def test_bytes_that_are_no_manifest_are_refused(encoded):
    with pytest.raises(DataError):
        parse(encoded)


KEYS = st.sampled_from(["files", "path", "size", "chunks", "kind"])
SHAPES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(KEYS, inner),
)


@given(SHAPES)
def test_json_that_is_no_manifest_is_refused(value):
    with pytest.raises(DataError):
        parse(json.dumps(value).encode())


@given(st.text())
def test_an_accepted_path_stays_below_its_folder_and_can_be_printed(path):
    assume(is_accepted(path))
    assert not path.startswith("/")
    assert not {"", ".", ".."} & set(path.split("/"))
    assert "\n" not in path
    assert "\x00" not in path
    path.encode()


@given(st.text().filter(lambda path: not is_accepted(path)))
def test_the_refusal_of_a_path_can_be_printed(path):
    with pytest.raises(NameRefused) as refusal:
        check_path(path)
    assert refusal.value.message.isprintable()


@given(st.integers(0, 20 * chunks.CHUNK))
def test_the_chunks_of_a_file_cover_it_without_overlap(size):
    spans = list(chunks.spans(size))
    assert len(spans) == chunks.count(size)
    assert sum(span.length for span in spans) == size
    assert [span.offset for span in spans] == [at * chunks.CHUNK for at in range(len(spans))]
