"""The operator's settings: `.mailboxd/config.yaml`, checked strictly, every key with a default but one.

Importing this package costs nothing: pydantic and YAML are imported when a configuration is first needed.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mailboxd.config.model import Config
    from mailboxd.core.checks import CheckRules
    from mailboxd.core.model import BreakerRules, Escalation, Policy
from mailboxd.core.task_view import Limits

__all__ = [
    "Config", "breaker", "checks", "default_text", "differences", "escalation", "limits", "load", "policy", "reference",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name != "Config":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from mailboxd.config.model import Config

    return Config


def load(path: Path) -> Config:
    """The configuration that stands in the file.

    Raises ConfigError, naming for everything that is wrong the file, the line, the key and the remedy.
    """
    from mailboxd.config.reading import load as load_file

    return load_file(path)


def default_text(agent: str) -> str:
    """A config.yaml that says `agent` and explains every other key in comments. ConfigError if `agent` is no id."""
    from mailboxd.config.reading import default_text as write

    return write(agent)


def differences(config: Config) -> dict[str, Any]:
    """What was set to something else than its default, as `{"limits.turns": 8}`; values are what JSON can say."""
    from mailboxd.config.reading import differences as compare

    return compare(config)


def reference() -> str:
    """A Markdown table of all keys with default, unit and range, meaning."""
    from mailboxd.config.reading import reference as write

    return write()


def policy(config: Config) -> Policy:
    """The rules that a task runs under where its own headers say nothing (protocol section 4)."""
    from mailboxd.config.model import policy as derive

    return derive(config)


def limits(config: Config) -> Limits:
    """The bounds that plans are admitted under (`limits.depth`, `limits.children`)."""
    from mailboxd.config.model import limits as derive

    return derive(config)


def checks(config: Config, *, has_schemas: bool) -> CheckRules:
    """What checks of a spec may run here; `has_schemas`: the library for JSON schemas is installed."""
    from mailboxd.config.model import checks as of

    return of(config, has_schemas=has_schemas)


def escalation(config: Config) -> Escalation:
    """What a task is tried with after failures (`escalation`)."""
    from mailboxd.config.model import escalation as derive

    return derive(config)


def breaker(config: Config) -> BreakerRules:
    """When the breaker of an agent opens, and for how long (`breaker`)."""
    from mailboxd.config.model import breaker as derive

    return derive(config)
