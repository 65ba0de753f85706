"""The files that come with mailboxd beside its code: inside the package in a wheel, next to it in a source checkout."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path


def package_data(name: str, *source: str) -> Path:
    """The file or directory `name` of the wheel; in a checkout it is at `source` (default: the same) below its root."""
    package = Path(str(files("mailboxd")))
    inside = package / name
    return inside if inside.exists() else package.parent.joinpath(*(source or (name,)))
