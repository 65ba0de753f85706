"""What all tests share: how hypothesis behaves on a machine that others use too."""

import os
import signal
from collections.abc import Iterator

import pytest
from hypothesis import settings

# a shell ignores SIGINT for what it runs in the background, and so would every program that a test interrupts
signal.signal(signal.SIGINT, signal.default_int_handler)

# a slow neighbour is no failure of ours; laws about time are measured where they are stated
settings.register_profile("explore", deadline=None, max_examples=500)
# few examples and the same each time, so that a green change stays green; `make soak` (EXPLORE=1) looks for new ones
settings.register_profile("repeatable", deadline=None, max_examples=40, derandomize=True)
settings.load_profile("explore" if os.environ.get("EXPLORE") else "repeatable")


@pytest.fixture(scope="session", autouse=True)
def _state_of_nobody(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test notes its workspaces, keys or tokens in the state directory of whoever runs it, nor heeds their caps."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))
        yield
