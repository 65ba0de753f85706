"""The metrics: as Prometheus' own parser reads them, of a workspace in which everything happened."""

from __future__ import annotations

import http.client
import json
import re
import socket
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from mailboxd.surfaces.telemetry import metrics
from mailboxd.surfaces.telemetry.metrics import NAMES, OTHER, Counters
from tests.e2e.conftest import Found
from tests.e2e.support import Agent, Company, eventually, task

ROOT = Path(__file__).resolve().parents[2]
WORK: dict[str, Any] = {"default": {"reply": "Result of {title}.", "cost": 0.25}}


class Scraped:
    """The samples as Prometheus stores them, by name and labels."""

    def __init__(self, text: str) -> None:
        self.families = {family.name: family for family in text_string_to_metric_families(text)}
        self.samples = [sample for family in self.families.values() for sample in family.samples]

    def __call__(self, name: str, **labels: str) -> float:
        found = [s.value for s in self.samples if s.name == name and labels.items() <= s.labels.items()]
        assert len(found) == 1, f"{name} {labels}: {found}"
        return float(found[0])


def scraped(agent: Agent) -> Scraped:
    done = agent.call("export", "metrics")
    assert done.returncode == 0, done.stderr
    return Scraped(done.stdout)


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Agent:
    """A workspace in which work was done, retried, rejected and is left waiting. No test changes it."""
    rules = [{"match": {"task": "shaky"}, "times": 1, "fail": {"kind": "transient"}}]
    alpha = Company(tmp_path_factory.mktemp("company"), {"alpha": {"rules": rules, **WORK}})["alpha"]
    alpha.settle_in({})
    alpha.drop("one.md", task("one"))
    alpha.drop("shaky.md", task("shaky"))
    alpha.drop("bad.md", "---\ntype: nonsense\n---\n")
    alpha.run()
    alpha.drop("later.md", task("later"))
    return alpha


@pytest.mark.slow
def test_everything_that_came_is_counted(busy: Agent) -> None:
    told = scraped(busy)
    received = told("mailboxd_messages_received_total")
    archived, rejected = told("mailboxd_messages_archived_total"), told("mailboxd_messages_rejected_total")
    assert (received, archived, rejected) == (3, 2, 1)
    assert told("mailboxd_messages_pending", state="unarchived") == 0
    assert told("mailboxd_messages_pending", state="unprocessed") == 1
    assert told("mailboxd_queue_age_seconds", queue="inbox") >= 0
    assert told("mailboxd_tasks", phase="completed") == 2
    assert told("mailboxd_tasks", phase="failed") == 0
    turns = len(busy.turns())
    assert told("mailboxd_turn_duration_seconds_count", turn="work") == turns
    assert told("mailboxd_turns_total", called="alpha", outcome="succeeded") == 2
    assert told("mailboxd_turns_total", called="alpha", outcome="failed") == 1
    assert told("mailboxd_attempts_total", outcome="failed") == 1
    assert told("mailboxd_cost_usd_total") == pytest.approx(0.5)
    assert told("mailboxd_tokens_total", direction="output") > 0
    assert told("mailboxd_attempts_total", outcome="succeeded") == 2
    retried = [event for event in busy.events("attempt.started") if event["data"]["attempt"]["ordinal"] > 1]
    assert told("mailboxd_retries_total") == len(retried) == 1
    assert told("mailboxd_events_total") == busy.query("SELECT max(seq) AS last FROM v_events")[0]["last"]
    assert told("mailboxd_up") == 0
    assert told("mailboxd_health", grade="off") == 1
    assert told("mailboxd_database_bytes") > 4096


@pytest.mark.slow
def test_names_types_and_help_are_as_prometheus_wants_them(busy: Agent) -> None:
    told = scraped(busy)
    for family in told.families.values():
        assert re.fullmatch("mailboxd_[a-z_]+", family.name)
        assert family.documentation
        assert all(sample.labels["agent"] == "alpha" for sample in family.samples)
        if family.type == "counter":
            assert all(sample.name.endswith("_total") for sample in family.samples)
    units = ("_seconds", "_bytes", "_info", "_total", "_usd")
    assert [name for name in told.families if "duration" in name and not name.endswith(units)] == []


@pytest.mark.slow
def test_the_daemon_serves_them_to_this_machine_alone(found: Found, tmp_path: Path) -> None:
    port = free_port()
    alpha = found({"alpha": WORK}, metrics={"port": port})["alpha"]
    alpha.start()
    eventually(lambda: listens(port), 60, alpha.last_words)
    alpha.drop("one.md", task("one"))
    alpha.until("one")
    bearer = f"Bearer {token_of(alpha)}"

    def is_well() -> bool:
        status, text = asked(port, bearer)
        assert status == 200
        told = Scraped(text)
        return told("mailboxd_tasks", phase="completed") == 1 and told("mailboxd_health", grade="green") == 1

    eventually(is_well, 30)
    told = Scraped(asked(port, bearer)[1])
    assert told("mailboxd_up") == 1
    assert told("mailboxd_scan_age_seconds") < 60
    again = Scraped(asked(port, bearer)[1])
    assert again("mailboxd_turn_duration_seconds_count", turn="work") == 1, "counted twice"
    for said in (None, "", "Bearer", "Bearer ", f"Basic {bearer[7:]}", bearer[7:], f"{bearer}x", "Bearer é"):
        status, text = asked(port, said)
        assert (status, "mailboxd_" in text) == (401, False), said
    assert asked(port, bearer, host="evil.example")[0] == 421
    assert asked(port, bearer, path="/")[0] == 404
    assert asked(port, bearer, method="POST")[0] == 501
    (alpha.root / ".mailboxd" / "metrics.token").write_text("one-for-all-of-them\n")
    assert (asked(port, bearer)[0], asked(port, "Bearer one-for-all-of-them")[0]) == (401, 200)
    (alpha.root / ".mailboxd" / "metrics.token").write_text("\n")
    assert asked(port, "Bearer ")[0] == 503
    alpha.kill()
    eventually(lambda: not listens(port), 30)


@pytest.mark.slow
def test_nothing_of_a_message_and_no_secret_is_in_them(found: Found) -> None:
    canary = "canary-77aa"
    alpha = found({"alpha": {"default": {"reply": f"{canary} result"}}})["alpha"]
    alpha.drop("one.md", task(f"{canary}-id", f"{canary} title", reply_token=f"{canary}-token"))
    alpha.drop(f"{canary}.md", f"---\ntype: {canary}\n---\n")
    alpha.run(env={"OPENAI_API_KEY": f"{canary}-key"})
    assert alpha.phases()
    assert canary not in alpha.call("export", "metrics", env={"OPENAI_API_KEY": f"{canary}-key"}).stdout


def test_labels_stay_few_however_many_agents_a_plan_names() -> None:
    counters = Counters()
    names = {counters._name(f"agent{number}") for number in range(10 * NAMES)}
    assert len(names) == NAMES + 1
    assert OTHER in names
    assert counters._name("AGENT3") == "agent3"


def test_the_dashboard_uses_only_existing_metrics() -> None:
    known = {told.name for told in metrics.METRICS} | {
        f"{metrics.DURATIONS}{ending}" for ending in ("_bucket", "_sum", "_count")
    }
    board = json.loads((ROOT / "grafana" / "mailboxd.json").read_text(encoding="utf-8"))
    queries = [target["expr"] for panel in board["panels"] for target in panel.get("targets", ())]
    asked_for = {name for query in queries for name in re.findall(r"mailboxd_[a-z_]+", query)}
    assert len(queries) >= 12
    assert asked_for <= known, asked_for - known
    assert {"mailboxd_up", "mailboxd_health", "mailboxd_tasks", "mailboxd_queue_age_seconds"} <= asked_for
    labels = {label for told in metrics.METRICS for label in told.labels} | {"agent", "turn", "le"}
    used = {label for query in queries for label in re.findall(r"([a-z_]+)(?:=~|!=|=)\"", query)}
    assert used <= labels, used - labels
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])


def test_every_metric_says_what_it_is_and_those_to_alert_on_exist() -> None:
    page = (ROOT / "docs" / "observability.md").read_text(encoding="utf-8")
    names = {told.name for told in metrics.METRICS} | {metrics.DURATIONS}
    assert [told.name for told in metrics.METRICS if not told.help] == []
    named = set(re.findall(r"mailboxd_\w+", page))
    assert named - names == set()
    assert len(named) >= 5


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def listens(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(2)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def token_of(agent: Agent) -> str:
    path = agent.root / ".mailboxd" / "metrics.token"
    assert path.stat().st_mode & 0o777 == 0o600
    return path.read_text().strip()


def asked(
    port: int, said: str | None = None, *, path: str = "/metrics", host: str = "", method: str = "GET"
) -> tuple[int, str]:
    """One request; `said` is its header Authorization."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    headers = {"Host": host or f"127.0.0.1:{port}"} | ({} if said is None else {"Authorization": said})
    connection.request(method, path, headers=headers)
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, text
