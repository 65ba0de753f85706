"""The operator's settings: `.mailboxd/config.yaml`.

Its parts are imported on first use, so that commands which never load a configuration do not import pydantic and YAML.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mailboxd.formats.config.file import CAPS, by_key, default_of, default_text, fingerprint, load, reference
    from mailboxd.formats.config.model import Config

__all__ = ["CAPS", "Config", "by_key", "default_of", "default_text", "fingerprint", "load", "reference"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{'model' if name == 'Config' else 'file'}"), name)
