"""How much memory there is, from files as the kernel writes them; and what programs at rest do not keep in theirs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from mailboxd.host.linux import available_memory as available

GIB = 1 << 30


def machine(root: Path, *, free: int | None = 4 * GIB, cgroup: str = "0::/user.slice/mailboxd.service\n") -> Path:
    (root / "proc/self").mkdir(parents=True)
    if free is not None:
        (root / "proc/meminfo").write_text(f"MemTotal: 99 kB\nMemAvailable:    {free // 1024} kB\nBuffers: 1 kB\n")
    (root / "proc/self/cgroup").write_text(cgroup)
    return root


def group(root: Path, path: str, limit: str, used: int, cache: int = 0) -> None:
    where = root / "sys/fs/cgroup" / path
    where.mkdir(parents=True, exist_ok=True)
    (where / "memory.max").write_text(f"{limit}\n")
    (where / "memory.current").write_text(f"{used}\n")
    (where / "memory.stat").write_text(f"anon 5\ninactive_file {cache}\n")


def test_without_a_limit_available_memory_is_that_of_the_machine(tmp_path: Path) -> None:
    machine(tmp_path)
    group(tmp_path, "user.slice/mailboxd.service", "max", GIB)
    assert available(tmp_path) == 4 * GIB


def test_the_narrowest_cgroup_counts_and_its_file_cache_is_free(tmp_path: Path) -> None:
    machine(tmp_path)
    group(tmp_path, "user.slice/mailboxd.service", str(2 * GIB), GIB, cache=GIB // 4)
    assert available(tmp_path) == GIB + GIB // 4
    group(tmp_path, "user.slice", str(GIB), GIB - 5)
    assert available(tmp_path) == 5


def test_a_cgroup_over_its_limit_has_nothing_left(tmp_path: Path) -> None:
    machine(tmp_path)
    group(tmp_path, "user.slice/mailboxd.service", "100", 200)
    assert available(tmp_path) == 0


@pytest.mark.parametrize("cgroup", ["", "4:memory:/old\n", "0::/../outside\n", "nonsense"])
def test_unreadable_memory_files_do_not_limit(tmp_path: Path, cgroup: str) -> None:
    assert available(machine(tmp_path, free=None, cgroup=cgroup)) is None


def test_this_machine_has_memory() -> None:
    assert (available() or 0) > 0


RARE = {
    "asyncio",
    "ssl",
    "http.client",
    "html",
    "difflib",
    "cryptography",
    "mcp",
    "uvicorn",
    "starlette",
    "nats",
    "rich",
    "textual",
}
"""What no daemon, program of turns or short command needs before there is something to do with it."""


NOT_FOR_STATUS = {
    "anyascii",
    "jinja2",
    "mailboxd.core.explain.model",
    "mailboxd.core.explain.why",
    "mailboxd.core.inputs",
    "mailboxd.core.model",
    "mailboxd.core.repetition",
    "mailboxd.formats.mailbox.inbox",
    "mailboxd.formats.mailbox.task_files",
    "pydantic",
    "tempfile",
    "zoneinfo",
}
"""What `status` can do without where there is little to say."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "more"),
    [
        ("mailboxd.daemon.supervise", {"jinja2"}),
        ("mailboxd.ledger.overview", NOT_FOR_STATUS),
        ("mailboxd.perform.agents.gateway.program", {"pydantic", "yaml", "sqlite3", "jinja2", "logging"}),
    ],
)
def test_what_is_rare_is_not_imported_at_the_start(program: str, more: set[str]) -> None:
    asked = f"import sys, {program}; print(*sys.modules)"
    said = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, timeout=60, check=True)
    assert not (RARE | more) & set(said.stdout.split())
