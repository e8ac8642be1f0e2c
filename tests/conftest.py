"""For every tier."""

import pytest_randomly

# DeepSpeed registers a seeder with pytest-randomly; to load it imports torch into every process of
# the unit tests. What torch draws, tests that use it seed themselves.
pytest_randomly.entrypoint_reseeds = []
