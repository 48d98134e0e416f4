"""What holds for all tests."""

from hypothesis import settings

# A busy machine is no failure; where time is the claim, a test measures it itself.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")
