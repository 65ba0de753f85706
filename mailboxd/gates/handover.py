"""What the daemon hands to its runner: the environment of the effect, as one variable.

Lobster's shells are login shells, which set PATH and whatever else a profile says. This they leave alone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from mailboxd.agents.openclaw import child_environment
from mailboxd.gates.ends import Setting

NAME = "MAILBOXD_EFFECT_ENVIRONMENT"


def handed_over(setting: Setting) -> dict[str, str]:
    """All that an effect may be given of the daemon's environment; which of it one is given, is decided there."""
    environ = setting.environ
    asked = {name: environ[name] for name in setting.rules.environment if name in environ}
    return {NAME: json.dumps(child_environment(environ, setting.openclaw_environment) | asked)}


def taken_over(environ: Mapping[str, str]) -> dict[str, str]:
    """What was handed over. Raises ValueError if it is not what we write."""
    taken = json.loads(environ.get(NAME, "{}"))
    if not isinstance(taken, dict) or not all(isinstance(value, str) for value in taken.values()):
        raise ValueError(f"{NAME} holds no variables")
    return taken
