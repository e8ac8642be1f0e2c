"""Profiles of hypothesis, chosen by HYPOTHESIS_PROFILE.

They are `ci` (the default), `night` and `shrink`.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, Phase, settings

# Shrinking a run of the engine takes minutes, so a failure is reported as it was found.
# `HYPOTHESIS_PROFILE=shrink` on the same seed gives a short one.
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
