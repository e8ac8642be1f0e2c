"""Settings for the tests that talk to services."""

from __future__ import annotations

from tests.fakes import service_models

service_models.share()
