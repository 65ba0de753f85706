"""Every test gets a company of its own, and leaves no process behind."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import pytest

from tests.e2e.support import Company


class Found(Protocol):
    def __call__(self, agents: Mapping[str, Any], *, daemons: Sequence[str] = ..., **settings: Any) -> Company: ...


@pytest.fixture
def found(tmp_path: Path) -> Iterator[Found]:
    """Found a company: `found({"alpha": {...rules}}, daemons=["alpha"], retry={...})`; settings are config keys."""
    companies: list[Company] = []

    def make(agents: Mapping[str, Any], *, daemons: Sequence[str] = ("alpha",), **settings: Any) -> Company:
        root = tmp_path / f"company{len(companies)}"
        root.mkdir()
        company = Company(root, agents)
        companies.append(company)
        for name in daemons:
            company[name].settle_in(settings)
        return company

    yield make
    for company in companies:
        company.close()
