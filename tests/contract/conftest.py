"""Settings for the tests that talk to services."""

from __future__ import annotations

import pytest

from tests.fakes import service_models

service_models.share()


@pytest.fixture(scope="session", autouse=True)
def patient_calls():
    """Give a call of the engine ten minutes.

    moto and the local cloud work on this machine's CPUs: a busy one is no silent AWS.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("slurmplugins.cloud.client.CALL_SECONDS", 600.0)
        yield
