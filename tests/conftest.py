"""Hypothesis profiles, and nothing else that a test could forget about."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

# The tests try the same examples each time, so that a red run means that the change is at fault; `make soak`
# is the one that goes looking.
settings.register_profile(
    "default", max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile(
    "soak", parent=settings.get_profile("default"), max_examples=3_000, derandomize=False
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))
