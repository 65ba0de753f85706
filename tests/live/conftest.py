"""One gateway for all tests of a worker; a test that harms a gateway founds its own. No process is left behind."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

import pytest

from tests.e2e.support import Settings
from tests.live.company import LiveCompany
from tests.live.gateway import Gateway, run_of
from tests.live.install import OPENCLAW, standard
from tests.live.model import Model

HERE = Path(__file__).parent
T = TypeVar("T")
SECONDS = 900
"""A whole test, its own gateway included, on a machine that has other things to do."""

AGENTS: Mapping[str, Settings] = {
    **run_of(["alpha", "beta", "gamma", "delta"]),
    "narrow": {"subagents": {"allowAgents": ["beta"]}},
}
"""`narrow` may give work to beta only."""


class Found(Protocol):
    def __call__(self, *, daemons: Sequence[str] = ..., **settings: Any) -> LiveCompany: ...


class FoundApart(Protocol):
    def __call__(
        self, agents: Mapping[str, Settings], *, daemons: Sequence[str] = ..., listed: bool = ..., start: bool = ...,
        plugin: bool = ..., release: str = ..., **settings: Any,
    ) -> LiveCompany: ...  # fmt: skip


def some_of(cases: Iterable[T], *now: T) -> list[Any]:
    """Parameters: those that state the most `now`, the others in `make soak`."""
    return [case if case in now else pytest.param(case, marks=pytest.mark.soak) for case in cases]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.timeout(SECONDS))


@pytest.fixture(scope="session")
def _installed() -> None:
    place = standard()
    assert place.has_node(), f"no Node in {place.cache}: run `make live`, or python -m tests.live.install"
    assert place.has_openclaw(), f"no OpenClaw in {place.cache}: run `make live`, or python -m tests.live.install"


@pytest.fixture(scope="session")
def shared(_installed: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Gateway, Model]]:
    with Model() as model:
        gateway = Gateway(tmp_path_factory.mktemp("gateway"), model.url, AGENTS)
        try:
            yield gateway.start(), model
        finally:
            gateway.close()


@pytest.fixture
def found(shared: tuple[Gateway, Model]) -> Iterator[Found]:
    """A company on the shared gateway, in empty workspaces: `found(daemons=["alpha"], limits={...})`.

    Sessions and the ledger of OpenClaw outlive a test: each test names its tasks as no other does.
    """
    gateway, model = shared
    model.reset()
    companies: list[LiveCompany] = []

    def make(*, daemons: Sequence[str] = ("alpha",), **settings: Any) -> LiveCompany:
        company = LiveCompany(gateway, model, list(AGENTS))
        companies.append(company)
        for name in daemons:
            company.employ(name, settings)
        return company

    yield make
    model.release()
    for company in companies:
        company.close()


@pytest.fixture
def found_apart(_installed: None, tmp_path: Path) -> Iterator[FoundApart]:
    """A company with a gateway and a model of its own, which a test may kill.

    `listed`: OpenClaw's configuration is of the old form. `start`: the gateway runs. `plugin`: with mailboxd's plugin.
    `release`: on this version of OpenClaw.
    """
    opened: list[tuple[Model, Gateway]] = []
    numbers = itertools.count()

    def make(
        agents: Mapping[str, Settings], *, daemons: Sequence[str] = ("alpha",), listed: bool = False,
        start: bool = True, plugin: bool = False, release: str = OPENCLAW, **settings: Any,
    ) -> LiveCompany:  # fmt: skip
        model, place = Model().__enter__(), standard(release)
        assert place.has_openclaw(), f"no OpenClaw {release} in {place.cache}: run python -m tests.live.install"
        root = tmp_path / f"gateway{next(numbers)}"
        gateway = Gateway(root, model.url, agents, listed=listed, installation=place)
        opened.append((model, gateway))
        company = LiveCompany(gateway, model, list(agents))
        if plugin:
            gateway.install_plugin()
        if start:
            gateway.start()
        for name in daemons:
            company.employ(name, settings)
        return company

    yield make
    for model, gateway in opened:
        gateway.close()
        model.__exit__(None)
