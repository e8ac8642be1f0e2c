"""Settings for every tier."""

import contextlib
import gc
import shutil
import tempfile
import time
from pathlib import Path

import pytest
import pytest_randomly

# The processes are short-lived and keep much memory: the collector takes a tenth of their time.
gc.set_threshold(200_000, 50, 50)

# DeepSpeed registers a seeder with pytest-randomly. Loading it imports torch into every process of
# the unit tests. Tests that draw from torch seed it themselves.
pytest_randomly.entrypoint_reseeds = []

FOLDERS = "toolkit-pytest-"
FOLDER_SECONDS = 3 * 86_400
FINE = (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
EXIT_STATUS = pytest.StashKey[int]()


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Give the session a temporary folder of its own.

    It stays after a failure, for three days. /tmp/pytest-of-USER is one for all sessions. Two that
    end together both delete its dead link: pytest 9.2 ends one of them with FileNotFoundError.
    """
    if config.option.basetemp is None:
        remove_old_folders()
        folder = config.option.basetemp = tempfile.mkdtemp(prefix=FOLDERS)

        def remove_unless_failed() -> None:
            if config.stash.get(EXIT_STATUS, pytest.ExitCode.OK) in FINE:
                shutil.rmtree(folder, ignore_errors=True)

        config.add_cleanup(remove_unless_failed)


def remove_old_folders() -> None:
    """Remove what failed and killed sessions left days ago."""
    oldest = time.time() - FOLDER_SECONDS
    for folder in Path(tempfile.gettempdir()).glob(f"{FOLDERS}*"):
        with contextlib.suppress(FileNotFoundError):  # another session removes them, too
            if folder.stat().st_mtime < oldest:
                shutil.rmtree(folder, ignore_errors=True)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Note the exit status, for the end of the configuration."""
    session.config.stash[EXIT_STATUS] = exitstatus
