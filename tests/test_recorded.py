"""What events may record of the configuration: every key decides, and nothing of what may hold a secret is in it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Annotated, Any, get_args, get_origin

import pytest
from pydantic.fields import FieldInfo

from mailboxd.core.policy import HIDDEN
from mailboxd.formats.config.model import Config, HostCaps, Section, Shown, value
from mailboxd.formats.config.recorded import recorded, shown_of
from mailboxd.hub.files.settings import HubSettings


def fields(kind: type[Section], below: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """Every key of a section and of those in it."""
    for name, field in kind.model_fields.items():
        inner = field.annotation
        entry = get_args(inner)[1] if get_origin(inner) is dict else inner
        if isinstance(entry, type) and issubclass(entry, Section):
            yield from fields(entry, f"{below}{name}.")
        else:
            yield f"{below}{name}", field


ALL = [pytest.param(field, id=name) for kind in (Config, HostCaps, HubSettings) for name, field in fields(kind)]


@pytest.mark.parametrize("field", ALL)
def test_every_key_decides_how_it_is_recorded(field: FieldInfo) -> None:
    assert shown_of(field) in Shown


def test_a_key_that_does_not_decide_cannot_be_recorded() -> None:
    class Careless(Section):
        token: str = value("", "A token.")
        words: Annotated[tuple[str, ...], "no marker"] = value((), "Words.")

    for field in Careless.model_fields.values():
        with pytest.raises(TypeError, match="does not say how it is recorded"):
            shown_of(field)


SECRET = "hunter2-sesame"


def test_no_secret_is_in_what_is_recorded() -> None:
    config = Config.model_validate(
        {
            "agent": "main",
            "openclaw": {"command": ("env", f"TOKEN={SECRET}", "openclaw")},
            "approvals": {"lobster": (f"KEY={SECRET}",)},
            "notify": {
                "command": ("/bin/tell", SECRET), "channel": "hooks", "target": SECRET, "account": SECRET,
                "link": f"https://ann:{SECRET}@mail.example/",
            },
            "metrics": {"otlp_endpoint": f"http://127.0.0.1:4318/{SECRET}"},
            "checks": {"commands": (("curl", SECRET), (f"curl {SECRET}",))},
            "acp": {"harnesses": {"gem": {"argv": ("gemini", "--key", SECRET)}}},
        }
    )  # fmt: skip
    found = list(recorded(config))
    shown = {one.path: one.shown for one in found}
    assert SECRET not in json.dumps(shown)
    assert {path: shown[path] for path in ("openclaw.command", "approvals.lobster", "notify.target")} == {
        "openclaw.command": "env (+2)",
        "approvals.lobster": HIDDEN,
        "notify.target": HIDDEN,
    }
    assert shown["checks.commands"] == ["curl (+1)", HIDDEN]
    assert shown["acp.harnesses.gem.argv"] == "gemini (+2)"
    hidden: list[Any] = [one.path for one in found if one.secret is not None]
    assert {path for path in shown if path.startswith("notify.") and path in hidden} == {
        "notify.command", "notify.channel", "notify.target", "notify.account", "notify.link",
    }  # fmt: skip


def test_what_counts_is_recorded_also_where_the_file_does_not_say_it() -> None:
    strict = {one.path: one.shown for one in recorded(Config.model_validate({"agent": "a", "profile": "strict"}))}
    assert (strict["gates.quality_gate"], strict["spec.weak"], strict["limits.usd_per_task"]) == (True, "ask", 10.0)
