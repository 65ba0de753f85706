"""Extras: without them everything else works, and the advice to install one suits the installer in use."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from mailboxd.host.pip_extras import to_add

WHEEL = "/home/ann/my wheels/mailboxd-0.1.0-py3-none-any.whl"


def _pipx(source: str) -> dict[str, str]:
    return {"pipx_metadata.json": json.dumps({"main_package": {"package": "mailboxd", "package_or_url": source}})}


def _pip(directory: dict[str, bool]) -> dict[str, str]:
    said = json.dumps({"url": f"file://{WHEEL}", "dir_info": directory})
    return {"lib/python3.11/site-packages/mailboxd-0.1.0.dist-info/direct_url.json": said}


def _uv(requirement: str) -> dict[str, str]:
    return {"uv-receipt.toml": f"[tool]\nrequirements = [{requirement}]\n"}


@pytest.mark.parametrize(
    ("notes", "advice"),
    [
        ({}, "pip install 'mailboxd[web]'"),
        (_pipx("mailboxd"), "pipx install --force 'mailboxd[web]'"),
        (_pipx("mailboxd[mcp, web]"), "pipx install --force 'mailboxd[mcp,web]'"),
        (_pipx(f"{WHEEL}[mcp]"), f"pipx install --force '{WHEEL}[mcp,web]'"),
        (_pipx("mailboxd[mcp]==0.1.0"), "pipx install --force 'mailboxd[web]'"),
        (_uv('{ name = "mailboxd" }'), "uv tool install --force 'mailboxd[web]'"),
        (
            _uv(f'{{ name = "rich" }}, {{ name = "mailboxd", extras = ["mcp"], path = "{WHEEL}" }}'),
            f"uv tool install --force '{WHEEL}[mcp,web]'",
        ),
        ({"uv-receipt.toml": "no toml"}, "pip install 'mailboxd[web]'"),
        (_pip({}), f"pip install 'mailboxd[web] @ file://{WHEEL}'"),
        (_pip({"editable": True}), f"pip install -e '{WHEEL}[web]'"),
        ({"pipx_metadata.json": "[]"}, "pip install 'mailboxd[web]'"),
    ],
)
def test_an_extra_is_added_by_what_installed_it(notes: dict[str, str], advice: str, tmp_path: Path) -> None:
    for name, text in notes.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert to_add("web", tmp_path) == advice


_WITHOUT_EXTRAS = """\
import importlib, pkgutil, sys

EXTRAS = {
    "acp", "cryptography", "jsonschema", "mcp", "nats", "nkeys", "opentelemetry", "prometheus_client", "starlette",
    "textual", "uvicorn", "wsproto",
}

class Hide:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in EXTRAS:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Hide())
import mailboxd.cli.commands as commands
names = [module.name for module in pkgutil.iter_modules(commands.__path__, commands.__name__ + ".")]
for name in (*names, *sys.argv[1:]):
    importlib.import_module(name)
"""


def test_what_needs_no_extra_can_be_imported_without_them() -> None:
    modules = ("daemon.supervise", "operate.doctor.diagnose", "operate.setup.plan", "perform.agents.acp.program")
    argv = [sys.executable, "-c", _WITHOUT_EXTRAS, *(f"mailboxd.{module}" for module in modules)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
