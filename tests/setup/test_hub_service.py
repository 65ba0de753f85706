"""The hub as services of the user, under a real `systemd --user` where one can be started."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from mailboxd.errors import UnavailableError
from mailboxd.operate.setup.hub_service import HubServices
from tests.e2e.support import BIN, MAILBOXD, eventually
from tests.hub.farm import Host, free_port
from tests.setup.usermanager import UserManager

ENVIRON = {"HOME": "/home/ann", "PATH": f"{BIN}:/usr/bin", "XDG_STATE_HOME": "/srv/100%/state"}


def test_the_units_name_this_installation_and_the_servers_configuration() -> None:
    units = HubServices(ENVIRON, Path("/srv/hub/nats.conf")).contents()
    assert list(units) == ["mailboxd-hub-server.service", "mailboxd-hub.service"], "the server is started first"
    assert f'ExecStart="{BIN}/nats-server" "-c" "/srv/hub/nats.conf"' in units["mailboxd-hub-server.service"]
    assert '"-m" "mailboxd.cli" "hub" "run"' in units["mailboxd-hub.service"]
    assert 'Environment="XDG_STATE_HOME=/srv/100%%/state"' in units["mailboxd-hub.service"]
    assert list(HubServices(ENVIRON).contents()) == ["mailboxd-hub.service"]


def test_without_a_server_program_it_says_where_to_get_it() -> None:
    with pytest.raises(UnavailableError, match=r"nats\.io"):
        HubServices({"HOME": "/home/ann", "PATH": "/nowhere"}, Path("/x")).contents()


@pytest.mark.slow
def test_a_hub_is_founded_as_services_and_left_again(manager: UserManager) -> None:
    address = f"127.0.0.1:{free_port()}"
    env = {"PATH": f"{BIN}:/usr/bin:/bin"}

    def hub(*words: str) -> subprocess.CompletedProcess[str]:
        return manager.call(*MAILBOXD, "hub", *words, env=env)

    done = hub("init", "alpha", "--address", address, "--service")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "started mailboxd-hub-server.service" in done.stdout
    eventually(lambda: hub("status").returncode == 0, 30, lambda: hub("status").stdout)
    assert hub("leave").returncode == 0
    assert manager.systemctl("is-active", "mailboxd-hub.service") != "active"
    assert not list((manager.root / "home" / ".config" / "systemd" / "user").glob("mailboxd-hub*"))


@pytest.mark.slow
def test_without_systemd_nothing_is_started_and_the_commands_are_named(tmp_path: Path) -> None:
    host = Host(tmp_path / "alpha", "alpha", {})
    done = host.hub("init", "alpha", "--address", "127.0.0.1:4222")
    assert "nats-server -c" in done.stdout
    assert "mailboxd hub run" in done.stdout
