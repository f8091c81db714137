"""What every test shares: the things it may need, and how hypothesis searches."""

import os

from hypothesis import HealthCheck, settings

pytest_plugins = ["tests.needs", "pytester"]

# A loaded machine is not a failure, so no example has a deadline. A change is checked against the same
# examples every time it is pushed; a developer's machine searches for new ones.
settings.register_profile(
    "tessera",
    deadline=None,
    derandomize=bool(os.environ.get("CI")),
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("tessera")
