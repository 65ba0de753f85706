"""A service manager of one's own for a test, and companies as the end-to-end tests found them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.conftest import found
from tests.setup.usermanager import UserManager, why_not

__all__ = ["found", "manager"]


@pytest.fixture
def manager() -> Iterator[UserManager]:
    """A real `systemd --user`; the test is skipped where none can be started."""
    if reason := why_not():
        pytest.skip(reason)
    started = UserManager()
    try:
        # what a container without /proc/kmsg cannot set up; test_service_unit has systemd judge the unit as it is
        started.relax("ProtectKernelLogs", "ProtectKernelTunables")
        yield started
    finally:
        started.close()
