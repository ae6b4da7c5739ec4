"""Settings of the property tests of this folder."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# A busy machine may stall any example: nothing here is about how long one takes.
settings.register_profile("any-machine", settings(deadline=None, suppress_health_check=[HealthCheck.too_slow]))
settings.load_profile("any-machine")
