"""`python -m mailboxd.perform.agents.schema_check REQUEST`: validate a JSON text against a JSON schema.

Agents write both, and a regular expression in a schema can run forever, so this is a separate process. REQUEST is a
JSON file with the texts `schema` and `instance`. Exit 0: valid. 1: invalid, stdout says why. 2: the schema is invalid.
References to other documents are errors; nothing is fetched.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from mailboxd.core.sanitize import one_line
from mailboxd.formats.protocol.markdown import sole_block

VALID, INVALID, INVALID_SCHEMA = 0, 1, 2
MAX_PROBLEMS = 20
_LONGEST = 400


def validate(schema_text: str, instance_text: str) -> tuple[int, list[str]]:
    """The exit status and a line for each problem."""
    from jsonschema import exceptions, validators
    from referencing import Registry

    try:
        schema = json.loads(schema_text)
        kind: Any = validators.validator_for(schema, default=validators.Draft202012Validator)
        kind.check_schema(schema)
    except (ValueError, RecursionError, exceptions.SchemaError) as error:
        return INVALID_SCHEMA, [_line(f"the schema is none: {getattr(error, 'message', error)}")]
    _, data = sole_block(instance_text) or (0, instance_text)
    try:
        instance = json.loads(data)
    except (ValueError, RecursionError) as error:
        return INVALID, [_line(f"it is no JSON: {error}")]
    registry: Any = Registry()
    problems = []
    try:
        for found in kind(schema, registry=registry).iter_errors(instance):
            problems.append(_line(f"{found.json_path}: {found.message}"))
            if len(problems) == MAX_PROBLEMS:
                break
    except (exceptions._WrappedReferencingError, RecursionError) as error:
        return INVALID_SCHEMA, [_line(f"the schema cannot be used: {error}")]
    return (INVALID if problems else VALID), problems


def _line(text: str) -> str:
    line = one_line(text)
    return line if len(line) <= _LONGEST else line[: _LONGEST - 1] + "…"


def main() -> None:
    request = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    status, problems = validate(request["schema"], request["instance"])
    sys.stdout.write("".join(f"{problem}\n" for problem in problems))
    sys.exit(status)


if __name__ == "__main__":
    main()
