"""A gateway to try things on by hand: `python -m tests.live.up DIR [--agents a,b,c] [--plugin] [--openclaw VERSION]`.

Starts a scripted model (it says "The outcome." to everything, and each request is told on standard error) and a real
gateway with its home, state and workspaces below DIR; prints what to export, then stays in the foreground. Ctrl-C ends
both.

    python -m tests.live.up /tmp/try > /tmp/try.env &      # then: . /tmp/try.env; openclaw agents list
"""

from __future__ import annotations

import argparse
import shlex
import signal
import sys
import time
from pathlib import Path

from tests.live.gateway import Gateway, run_of
from tests.live.install import OLDER, OPENCLAW, standard
from tests.live.model import Model


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.live.up", description=(__doc__ or "").split("\n\n")[1])
    parser.add_argument("directory", type=Path)
    parser.add_argument("--agents", default="alpha,beta,gamma")
    parser.add_argument("--plugin", action="store_true", help="with mailboxd's gateway plugin")
    parser.add_argument("--openclaw", default=OPENCLAW, choices=(OPENCLAW, *OLDER), help="the version")
    words = parser.parse_args()
    place = standard(words.openclaw)
    if not (place.has_node() and place.has_openclaw()):
        sys.exit(f"tests.live.up: nothing is installed in {place.cache}; run python -m tests.live.install")
    for number in (signal.SIGTERM, signal.SIGINT):  # a shell starts what is put into the background without SIGINT
        signal.signal(number, signal.default_int_handler)
    with Model() as model:
        agents = run_of(words.agents.split(","))
        gateway = Gateway(words.directory.resolve(), model.url, agents, installation=place)
        try:
            if words.plugin:
                gateway.install_plugin()
            gateway.start()
            for name, value in gateway.exports.items():
                print(f"export {name}={shlex.quote(value)}")
            print(f"# gateway: port {gateway.port}, log {gateway.log}; model: {model.url}", flush=True)
            told = 0
            while gateway.process is not None and gateway.process.poll() is None:
                for call in model.calls[told:]:
                    print(f"{call.agent}: {call.kind} {call.task} {call.attempt} ({call.steps})", file=sys.stderr)
                    told += 1
                time.sleep(0.2)
            sys.exit(f"tests.live.up: the gateway has ended\n{gateway.last_words()}")
        except KeyboardInterrupt:
            pass
        finally:
            gateway.close()


if __name__ == "__main__":
    main()
