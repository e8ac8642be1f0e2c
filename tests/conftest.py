"""Settings for every tier."""

import gc
import shutil
import tempfile

import pytest
import pytest_randomly

# The processes are short-lived and keep much memory: the collector takes a tenth of their time.
gc.set_threshold(200_000, 50, 50)

# DeepSpeed registers a seeder with pytest-randomly. Loading it imports torch into every process of
# the unit tests. Tests that draw from torch seed it themselves.
pytest_randomly.entrypoint_reseeds = []

HAS_FAILURES = pytest.StashKey[bool]()


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Give the session a temporary folder of its own.

    Only after a failed test it stays, if tmp_path_retention_policy is not "none". pytest's folder
    is one for all sessions of a user. Two that end together both delete its dead link: pytest 9.2
    ends one of them with FileNotFoundError.
    """
    if config.option.basetemp is None:
        folder = config.option.basetemp = tempfile.mkdtemp(prefix="toolkit-pytest-")

        keeps_failed = config.getini("tmp_path_retention_policy") != "none"

        def remove_unless_failed() -> None:
            if not (keeps_failed and config.stash.get(HAS_FAILURES, False)):
                shutil.rmtree(folder, ignore_errors=True)

        config.add_cleanup(remove_unless_failed)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Note whether a test failed, for the end of the session."""
    session.config.stash[HAS_FAILURES] = session.testsfailed > 0
