"""Cards of the real Workboard (OpenClaw 2026.9.6): one for each task, and none that OpenClaw would work on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.support import eventually
from tests.live.company import LiveCompany
from tests.live.gateway import Gateway, run_of
from tests.live.model import Hang, Model, Text
from tests.live.test_session_notes import call, paired


@pytest.mark.soak
@pytest.mark.usefixtures("_installed")
def test_a_task_is_one_card_that_moves_to_done_over_a_death_of_the_daemon(tmp_path: Path) -> None:
    enabled = {"entries": {"workboard": {"enabled": True}}}
    with Model() as model:
        gateway = Gateway(tmp_path / "gateway", model.url, run_of(["alpha"]), plugins=enabled)
        company = LiveCompany(gateway, model, ["alpha"])
        try:
            gateway.start()
            company.employ("alpha", {"notify": {"workboard": "true"}, "openclaw": {"transport": "auto"}})
            paired(company)
            alpha = company["alpha"]
            model.on(Hang("It is done."), task="long")
            model.on(Text("---\ntype: question\n---\nWhich format?\n"), task="asks")
            alpha.start()

            def columns() -> dict[str, str]:
                cards = call(gateway, "workboard.cards.list")["cards"]
                names = [card["title"].partition(":")[0] for card in cards]
                assert len(names) == len({*names})
                return {name: card["status"] for name, card in zip(names, cards, strict=True)}

            assert alpha.call("send", "--task-id", "asks", "Do it.").returncode == 0
            eventually(lambda: columns() == {"asks": "blocked"}, 120, alpha.last_words)
            assert alpha.call("send", "--task-id", "long", "Do it.").returncode == 0
            eventually(lambda: columns() == {"long": "running", "asks": "blocked"}, 120, alpha.last_words)
            alpha.kill()
            model.release()
            alpha.start()
            alpha.until("long")
            eventually(lambda: columns() == {"long": "done", "asks": "blocked"}, 120, alpha.last_words)
            assert not model.made(kind=""), "nobody else works on a card"
            company.at_rest()
        finally:
            company.close()
            gateway.close()
