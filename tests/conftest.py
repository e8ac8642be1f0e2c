"""Settings for every tier."""

import gc

import pytest_randomly

# The processes are short-lived and keep much memory: the collector takes a tenth of their time.
gc.set_threshold(200_000, 50, 50)

# DeepSpeed registers a seeder with pytest-randomly. Loading it imports torch into every process of
# the unit tests. Tests that draw from torch seed it themselves.
pytest_randomly.entrypoint_reseeds = []
