"""What holds for every test."""

import pytest
import structlog
from hypothesis import HealthCheck, settings

# The machines that run this are slow at times; a property is about values, not about speed.
settings.register_profile("lanewise", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("lanewise")


@pytest.fixture(autouse=True)
def _logs_as_before():
    """Programs say where their log goes, for the whole process; the next test's log is its own."""
    yield
    structlog.reset_defaults()
