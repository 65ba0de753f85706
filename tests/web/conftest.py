"""A company whose workspaces stand side by side on one page."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.cli.stage import Stage, make
from tests.e2e.conftest import Found
from tests.e2e.conftest import found as plainly_found
from tests.e2e.support import Company
from tests.web.serve import Browser, served

__all__ = ["plainly_found"]


@pytest.fixture
def found(plainly_found: Found) -> Found:
    """Found a company that has a state directory, and so a registry, of its own."""

    def make_company(agents: Mapping[str, Any], *, daemons: Sequence[str] = ("alpha",), **settings: Any) -> Company:
        company = plainly_found(agents, daemons=daemons, **settings)
        company.env["XDG_STATE_HOME"] = str(company.root / "state")
        return company

    return make_company


@pytest.fixture
def opened() -> Iterator[Callable[..., Browser]]:
    """The page of a company: `opened(company, "alpha", *words)`, as seen from that agent's workspace."""
    with ExitStack() as held:

        def open_page(company: Company, name: str = "alpha", *words: str) -> Browser:
            return held.enter_context(served(company[name].root, company.env, *words))

        yield open_page


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Stage:
    """A workspace of agent alpha, without a daemon."""
    return make(tmp_path_factory.mktemp("stage") / "alpha")


@pytest.fixture(scope="module")
def page(stage: Stage, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """The page of that workspace, with a state directory of its own."""
    state: Path = tmp_path_factory.mktemp("state")
    with served(stage.ws.root, {"XDG_STATE_HOME": str(state)}) as browser:
        yield browser
