"""What holds for every test."""

from hypothesis import HealthCheck, settings

# The machines that run this are slow at times; a property is about values, not about speed.
settings.register_profile("lanewise", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("lanewise")
