"""How long the laws are looked for: HYPOTHESIS_PROFILE=ci (the default) or night."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, Phase, settings

# Shrinking a run of the engine takes minutes: CI reports the failure as it was found, and
# `HYPOTHESIS_PROFILE=shrink` on the same seed gives the short one.
FOUND = [Phase.explicit, Phase.reuse, Phase.generate]
SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]

settings.register_profile("ci", derandomize=True, deadline=None, suppress_health_check=SLOW)
settings.register_profile(
    "night",
    max_examples=5000,
    stateful_step_count=80,
    deadline=None,
    suppress_health_check=SLOW,
    phases=FOUND,
    print_blob=True,
)
settings.register_profile(
    "shrink", derandomize=True, deadline=None, suppress_health_check=SLOW, print_blob=True
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))
