"""Files that an agent put where the gateway's plugin reads: they harm nobody else."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from mailboxd.operate.integration import plugin_source
from tests.live.install import standard

VIEW: dict[str, Any] = {
    "version": 1, "agent": "boss", "command": "mailboxd", "people": [], "counts": {}, "total": 0, "items": []
}  # fmt: skip


@pytest.fixture(autouse=True)
def _node(_installed: None) -> None:
    pass


def run(script: str, workspaces: dict[str, Path]) -> Any:
    """What the script, the body of an async function, returns; `api` knows these workspaces."""
    names = ("turns", "views", "command", "check")
    program = "".join(f'import * as {name} from "{plugin_source() / name}.js";\n' for name in names)
    program += 'import { readFile } from "node:fs/promises";\n'
    program += f"const places = {json.dumps({name: str(path) for name, path in workspaces.items()})};\n"
    program += "const config = { agents: { list: Object.keys(places).map((id) => ({ id })) } };\n"
    program += "const agent = { resolveAgentWorkspaceDir: (_, id) => places[id] };\n"
    program += "const api = { config, runtime: { config: { current: () => config }, agent } };\n"
    program += f"console.log(JSON.stringify((await (async () => {{{script}}})()) ?? null)); process.exit(0);"
    done = subprocess.run(
        [str(standard().node), "--input-type=module", "-e", program], capture_output=True, text=True, timeout=20
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_pipes_in_the_place_of_files_do_not_stop_the_gateway(tmp_path: Path) -> None:
    workspaces = {f"agent{number}": tmp_path / str(number) for number in range(5)}
    for place in workspaces.values():
        (place / ".mailboxd" / "answers").mkdir(parents=True)
        os.mkfifo(place / ".mailboxd" / "answers" / "plugin.json")
    assert run("turns.announce(api); return await readFile('/proc/self/stat', 'utf8') !== '';", workspaces) is True


@pytest.mark.parametrize(
    "more",
    [
        {"items": [None]},
        {"items": [{}]},
        {"counts": None},
        {"agent": "boss"},
        {"total": "x"},
        {"orders": []},
        {"orders": {"pause": {"name": "note"}}},
        {"orders": {"pause": [{"name": 3}]}},
    ],
)
def test_a_view_that_no_daemon_wrote_is_left_out_alone(tmp_path: Path, more: dict[str, Any]) -> None:
    workspaces = {"boss": tmp_path / "boss", "evil": tmp_path / "evil"}
    for name, place in workspaces.items():
        (place / ".mailboxd").mkdir(parents=True)
        said = VIEW if name == "boss" else {**VIEW, "agent": "evil", **more}
        (place / ".mailboxd" / "view.json").write_text(json.dumps(said))
    script = "const found = await views.readViews(api); return [found.map((one) => one.agent), command.list(found)];"
    agents, text = run(script, workspaces)
    assert agents == ["boss"]
    assert text.startswith("Nothing needs you")


def test_arguments_that_the_daemon_would_not_take_are_refused_in_the_run() -> None:
    script = """
        let deep = 1;
        for (let count = 0; count < 5000; count += 1) deep = [deep];
        const tool = { name: "mailboxd_finish", parameters: { type: "object", properties: {} } };
        return [check.problemsOf(tool, { deep }, {}), check.problemsOf(tool, { deep: [1] }, {})];
    """
    assert run(script, {}) == [["the arguments: nested too deep"], []]


def test_a_call_that_openclaw_would_leave_out_of_the_history_is_refused_in_the_run() -> None:
    script = """
        const tool = { name: "mailboxd_finish", parameters: { type: "object", properties: {} } };
        return ["\\u00e9".repeat(60000), "x".repeat(90000)].map((result) => check.problemsOf(tool, { result }, {}));
    """
    (why,), none = run(script, {})
    assert why.endswith("or send the finished work as plain text")
    assert none == []
