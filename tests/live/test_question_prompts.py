"""Questions at the real gateway's prompts: answered there, answered elsewhere, and over a death of the gateway."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e.support import eventually
from tests.live.conftest import FoundApart, some_of
from tests.live.gateway import Gateway, run_of
from tests.live.model import Text
from tests.live.test_session_notes import MAIN, RELEASES, call, paired

ASKS = Text("---\ntype: question\n---\nWhich format?\n\n- CSV\n- PDF\n")


def pending(gateway: Gateway) -> dict[str, dict[str, Any]]:
    """The prompts that OpenClaw shows, by the task that they name."""
    found = call(gateway, "question.list")["questions"]
    return {one["questions"][0]["question"].partition(":")[0]: one for one in found}


@pytest.mark.parametrize("release", some_of(RELEASES, RELEASES[0]))
def test_a_question_is_open_at_the_prompt_as_long_as_elsewhere(found_apart: FoundApart, release: str) -> None:
    company = found_apart(
        run_of(["alpha"]), release=release, openclaw={"transport": "auto"}, notify={"reply_to": ["session:*"]}
    )
    alpha, gateway, model = company["alpha"], company.gateway, company.model
    paired(company)
    paired(company, "--questions")
    for name in ("there", "elsewhere", "lost"):
        model.on(ASKS, task=name, kind="work")
        model.on(Text(f"{name} is exported."), task=name, text="CSV|PDF|something else")
    alpha.start()
    for name in ("there", "elsewhere", "lost"):
        where = ("--reply-to", "session:agent:alpha:chat") if name == "there" else ()
        assert alpha.call("send", "--task-id", name, *where, "Export it.").returncode == 0
    eventually(lambda: len(pending(gateway)) == 3, 120, alpha.last_words)
    found = pending(gateway)
    assert (found["there"]["sessionKey"], found["lost"]["sessionKey"]) == ("agent:alpha:chat", MAIN)
    assert [one["label"] for one in found["there"]["questions"][0]["options"]] == ["CSV", "PDF"]

    call(gateway, "question.resolve", id=found["there"]["id"], answers={"answers": {"answer": ["CSV"]}})
    assert alpha.call("answer", "elsewhere", "PDF").returncode == 0
    eventually(lambda: pending(gateway).keys() == {"lost"}, 60, alpha.last_words)
    assert "a person at OpenClaw's prompt" in alpha.call("log", "there").stdout

    gateway.kill()
    gateway.start()
    eventually(lambda: pending(gateway).keys() == {"lost"}, 120, alpha.last_words)
    again = pending(gateway)["lost"]
    assert again["id"] == found["lost"]["id"]
    call(gateway, "question.resolve", id=again["id"], answers={"answers": {"answer": ["something else"]}})
    eventually(lambda: not alpha.json("inbox"), 60, alpha.last_words)
    for name in ("there", "elsewhere", "lost"):
        alpha.until(name)
    company.at_rest()
