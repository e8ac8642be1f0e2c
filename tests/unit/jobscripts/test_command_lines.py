"""The command lines of documents and jobscripts' headers are not refused."""

import re
from pathlib import Path

import pytest

from toolkit.datasets.__main__ import parser
from toolkit.datasets.errors import DatasetUnknown
from toolkit.datasets.store.catalog import Catalog
from toolkit.datasets.store.folder_store import FolderStore

REPO = Path(__file__).resolve().parents[3]
SHARED = "/shared/jobscripts/"
TEXTS = sorted([*REPO.glob("jobscripts/*.sbatch"), *REPO.glob("docs/*.md"), REPO / "README.md"])
CALL = re.compile(
    r"sbatch(?: --?[a-z][^\s`]*| \[[^\]`]*\])* (\S*?[a-z-]+\.sbatch)((?:\s[^\s`;(]+)*)"
)


def documented_calls(script):
    """Return the calls of a script: document and words.

    Only words on the line of the call count.
    """
    for path in TEXTS:
        for name, words in CALL.findall(path.read_text()):
            if Path(name).name == script:
                yield path.name, words.strip().partition("\n")[0].split()


def test_every_documented_dataset_of_a_warm_up_is_a_valid_reference(tmp_path):
    catalog = Catalog(FolderStore(tmp_path))
    calls_with_words = [
        (path, word) for path, words in documented_calls("data-warmup.sbatch") for word in words
    ]
    references = [(path, word) for path, word in calls_with_words if word.islower()]
    assert len(references) == 4
    for _, word in references:
        with pytest.raises(DatasetUnknown):  # the name is valid, so NameRefused would be a fault
            catalog.matching_versions(word)


def test_every_documented_copy_is_a_command_of_the_datasets_program():
    calls = [
        [word.strip('"').rstrip(")") for word in words]
        for _, words in documented_calls("stage.sbatch")
    ]
    assert {words[0] for words in calls} == {"put", "put-run", "get"}
    for words in calls:
        assert parser().parse_args(words).command == words[0]


@pytest.mark.parametrize("script", ["torchrun", "fsdp", "deepspeed", "pipeline", "sweep"])
def test_every_documented_training_script_is_shipped_or_the_users_own(script):
    scripts = [(path, words[0]) for path, words in documented_calls(f"{script}.sbatch") if words]
    assert scripts
    for path, word in scripts:
        shipped = REPO / "jobscripts" / word.removeprefix(SHARED)
        assert "/" not in word or (word.startswith(SHARED) and shipped.is_file()), (path, word)
