"""For every tier."""

import gc

import pytest_randomly

# Short-lived processes with much memory that stays: looking through it is a tenth of their time.
gc.set_threshold(200_000, 50, 50)

# DeepSpeed registers a seeder with pytest-randomly; to load it imports torch into every process of
# the unit tests. What torch draws, tests that use it seed themselves.
pytest_randomly.entrypoint_reseeds = []
