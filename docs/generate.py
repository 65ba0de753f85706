"""The parts of the documentation that are derived from the code.

`make docs` writes PAGES, which are kept in git and compared by a test. SITE_PAGES exist only in the site.
A new page is one function that returns its text, and one row in either table.
"""

from __future__ import annotations

import inspect
import re
import tomllib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import click
from pydantic import TypeAdapter
from pydantic.fields import FieldInfo

from mailboxd import errors
from mailboxd.cli.program import program
from mailboxd.core import lifecycle, specs
from mailboxd.core.vocabulary import Mode, Phase, state_words
from mailboxd.formats import config
from mailboxd.formats.drawing.graph import plan_graph
from mailboxd.formats.drawing.svg import graph_svg
from mailboxd.formats.protocol import headers, taskmd
from mailboxd.formats.protocol.messages import MESSAGE_TYPES, Message, parse_message
from mailboxd.formats.protocol.recipe import Recipes, example_values, expand
from mailboxd.surfaces.telemetry import metrics

DOCS = Path(__file__).resolve().parent


def configuration_page() -> str:
    """Every key of config.yaml."""
    return f"""\
# Configuration

`.mailboxd/config.yaml` in the workspace; `mailboxd init` writes it with every key in a comment. `agent` is required.
Unknown or repeated keys, anchors, tags and numbers out of range are refused (exit {errors.EXIT_CONFIG}).

{config.reference()}"""


_NOT_DRAWN = {
    lifecycle.Trigger.CANCELLED,
    lifecycle.Trigger.DEADLINE_PASSED,
    lifecycle.Trigger.IMPORTED_DONE,
    lifecycle.Trigger.IMPORTED_FAILED,
}
"""Triggers that apply to nearly every phase; their arrows would hide the others."""


def work_page() -> str:
    """The phases of a task."""
    said = _protocol()
    phases = [f"| `{p}` | {state_words(p)} | {said['phases'][p.value]} |" for p in Phase]
    return _filled("when-work-counts.md", {"phases": _table("phase", "read as", "means", rows=phases)})


def transitions_page() -> str:
    """The life of a task, from the tables that decide it, and the words of the rule that finds a criterion vague."""
    said = _protocol()
    moves: dict[lifecycle.Trigger, dict[Phase, list[Phase]]] = {}
    for (source, trigger), target in lifecycle.TRANSITIONS.items():
        moves.setdefault(trigger, {}).setdefault(target, []).append(source)
    settled = {row.trigger for row in lifecycle.STATE_TRIGGERED} - {lifecycle.Trigger.CANCELLED}
    automatic, ordered = (
        _table(
            "when",
            "from → to",
            rows=[
                f"| {said['triggers'][trigger.name]} | {_moves(targets)} |"
                for trigger, targets in moves.items()
                if (trigger in settled) == is_settled
            ],
        )
        for is_settled in (True, False)
    )
    return f"""\
# Transitions

From the tables of `mailboxd/core/lifecycle.py`. Any other transition is refused (`illegal-transition`).

## Automatic

Checked after every event, for the task and its neighbours, until nothing more follows.

{automatic}

## On an input

{ordered}

## Vague criteria

A criterion is vague if it contains one of these words, and nothing remains without them, the fillers and the goal's
words: {", ".join(specs.VAGUE)}.

Fillers: {", ".join(specs.FILLERS)}.
"""


def states_picture() -> str:
    """The phases in a column; transitions forward are arcs on the right, others on the left."""
    step, width, height, middle = 58, 170, 32, 320
    place = {phase: number * step + height for number, phase in enumerate(Phase)}
    arcs = []
    for source, target in sorted(
        {(a, b) for (a, trigger), b in lifecycle.TRANSITIONS.items() if trigger not in _NOT_DRAWN}
    ):
        start, end = place[source], place[target]
        side = 1 if end > start else -1
        edge = middle + side * width // 2
        out = edge + side * min(30 + abs(end - start) * 0.55, 300)
        arcs.append(
            f'<path d="M{edge} {start + 4 * side}C{out} {start} {out} {end} {edge} {end - 4 * side}" fill="none" '
            'stroke="#8899aa" marker-end="url(#head)"/>'
        )
    boxes = [
        f'<rect x="{middle - width // 2}" y="{y - height // 2}" width="{width}" height="{height}" rx="6" fill="#fff" '
        f'stroke="#556677"/><text x="{middle}" y="{y + 5}" text-anchor="middle">{phase}</text>'
        for phase, y in place.items()
    ]
    head = (
        '<marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0L8 4L0 8z" fill="#8899aa"/></marker>'
    )
    size = f'viewBox="0 0 {2 * middle} {len(place) * step + height // 2}" width="{2 * middle}"'
    style = 'font-family="sans-serif" font-size="14"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} {style}>{head}{"".join(arcs)}{"".join(boxes)}</svg>\n'


def _moves(targets: dict[Phase, list[Phase]]) -> str:
    """Each target with its sources, or "most phases" for five and more."""
    ways = []
    for target, sources in targets.items():
        some = ", ".join(f"`{source}`" for source in sources) if len(sources) < 5 else "most phases"
        ways.append(f"{some} → `{target}`")
    return "; ".join(ways)


def messages_page() -> str:
    """Types and headers of messages. The page's examples are parsed and must be valid."""
    said = _protocol()
    kinds = [
        f"| [`{word}`](#{word}) | {_names(kind.required)} | {_names(kind.expected)} | {_sentence(kind)} |"
        for word, kind in MESSAGE_TYPES.items()
    ]
    fields: dict[str, FieldInfo] = {}
    for kind in MESSAGE_TYPES.values():
        fields |= {name: kind.model_fields[field] for name, field in kind.header_fields().items()}
    places: dict[str, list[str]] = {}
    for name, field in fields.items():
        value, meaning = _value(name, field, said["values"]), said["headers"][name]
        places.setdefault(_where(name), []).append(f"- `{name}` ({value}): {meaning}")
    for example in _examples("messages.md"):
        if warnings := parse_message(example.encode(), "messages.md").warnings:
            raise ValueError(f"an example in messages.md: {warnings}")
    blocks = {
        "types": _table("type", "required", "expected", "what it is", rows=kinds),
        "headers": "\n\n".join(f"In {place}:\n\n{_lines(rows)}" for place, rows in places.items()),
    }
    return _filled("messages.md", blocks)


def taskmd_page() -> str:
    """Statuses in task.md. The page's examples are parsed and must be valid."""
    for example in _examples("taskmd.md"):
        taskmd.parse_task_file(example.encode(), "taskmd.md")
    statuses = [f"| `{mode}` | {', '.join(f'`{word}`' for word in taskmd.STATUSES[mode])} |" for mode in Mode]
    statuses.append(f"| a child in the DAG | {', '.join(f'`{word}`' for word in taskmd.CHILD_STATUSES)} |")
    return _filled("taskmd.md", {"statuses": _table("mode", "statuses", rows=statuses)})


def cli_page() -> str:
    """Every command: usage, options, examples, exit statuses."""
    with click.Context(program, info_name="mailboxd") as ctx:
        commands = [program.get_command(ctx, name) for name in program.list_commands(ctx)]
        sections = [_lines(list(_command(command, ctx))) for command in commands if command is not None]
    introduction = inspect.cleandoc(program.help or "").partition("\n\n")[2]
    exits = (program.epilog or "").partition("Exit status:\n")[2].rstrip()
    return f"""\
# Commands

{introduction}

Every command takes these options, before or after its name:

- `-w, --workspace DIRECTORY`: default: the nearest workspace at or above the current directory.
- `--json`: print JSON. Errors on standard error are then `{{"error": {{"kind", "exit", "message", ...}}}}`.
- `-h, --help`: print what is shown here.

Color is disabled by NO_COLOR. Exit statuses ([runbook](runbook.md#exit-codes)); each command lists its own:

```text
{exits}
```

{_lines(sections)}"""


def _command(command: click.Command, parent: click.Context) -> Iterator[str]:
    ctx = click.Context(command, info_name=command.name, parent=parent)
    usage = " ".join([ctx.command_path, *command.collect_usage_pieces(ctx)])
    yield from (f"## {ctx.command_path.removeprefix('mailboxd ')}", "", "```text", usage, "```", "")
    yield from (_blocks(command.help or ""), "")
    shared = {"session_workspace", "session_json"}
    own = [param for param in command.params if isinstance(param, click.Option) and param.name not in shared]
    records = filter(None, [param.get_help_record(ctx) for param in own])
    options = [f"- `{names}`: {says}" for names, says in records]
    if options:
        yield from (*options, "")
    for part in (command.epilog or "").split("\b\n")[1:]:
        title, _, lines = part.rstrip().partition("\n")
        block = [line.removeprefix("  ") for line in lines.split("\n")]
        if title == "Examples:":
            yield from ("```sh", *block, "```", "")
        else:
            exits = (line.strip().partition("  ") for line in block)
            yield from (f"Exit status: {'; '.join(f'{code} {says.strip()}' for code, _, says in exits)}.", "")
    if isinstance(command, click.Group):
        for name in command.list_commands(ctx):
            below = command.get_command(ctx, name)
            if below is not None:
                yield from _command(below, ctx)


def _blocks(text: str) -> str:
    """A help text in Markdown: a paragraph that click does not wrap (after a backspace) is a code block."""
    parts = inspect.cleandoc(text).split("\n\n")
    return "\n\n".join("\n".join(["```text", part[2:], "```"]) if part.startswith("\b") else part for part in parts)


def metrics_page() -> str:
    """Every metric, as Prometheus receives it."""
    rows = [_metric(one.name, one.kind, one.labels, one.help) for one in metrics.METRICS]
    rows.append(_metric(metrics.DURATIONS, "histogram", ("turn",), metrics.DURATIONS_HELP))
    return f"# Metrics\n\n{_table('metric', 'kind', 'labels', '', rows=rows)}\n"


def _metric(name: str, kind: str, labels: tuple[str, ...], says: str) -> str:
    return f"| `{name}` | {kind} | {', '.join(f'`{label}`' for label in labels)} | {says} |"


def recipes_page() -> str:
    """Every packaged recipe, with its parameters and its picture."""
    return _filled("recipes.md", {"recipes": "\n\n".join(map(_recipe, Recipes().names()))})


def _recipe(name: str) -> str:
    recipe = Recipes().load(name)
    rows = [
        f"- `{one.name}`{' (list)' if one.is_list else ''}: {one.about}"
        f"{'' if one.default is None else f' ({one.default})'}"
        for one in recipe.parameters
    ]
    picture = f"![The plan of {name}](images/recipes/{name}.svg)\n"
    return f"## {name}\n\n{recipe.about}.\n\n{picture}\n{_lines(rows)}"


def _picture(name: str) -> str:
    """The plan of a recipe, drawn."""
    recipe = Recipes().load(name)
    made = expand(recipe, example_values(recipe))
    return graph_svg(plan_graph(made.dag.plan, made.title), made.title)


PAGES: dict[str, Callable[[], str]] = {
    "messages.md": messages_page,
    "recipes.md": recipes_page,
    "when-work-counts.md": work_page,
    "images/states.svg": states_picture,
    "taskmd.md": taskmd_page,
    **{f"images/recipes/{name}.svg": partial(_picture, name) for name in Recipes().names()},
}


SITE_PAGES = {
    "cli.md": cli_page,
    "configuration.md": configuration_page,
    "metrics.md": metrics_page,
    "transitions.md": transitions_page,
}
"""What `mailboxd --help`, the comments in config.yaml, `mailboxd export metrics` and lifecycle.py say already."""


def _sentence(kind: type) -> str:
    return " ".join((inspect.getdoc(kind) or "").partition("\n\n")[0].replace("``", "empty").split())


def _lines(rows: list[str]) -> str:
    return "\n".join(rows)


def _table(*heads: str, rows: list[str]) -> str:
    return _lines([f"| {' | '.join(heads)} |", "|" + " --- |" * len(heads), *rows])


def _filled(name: str, blocks: dict[str, str]) -> str:
    """The page with the text between `<!-- begin x -->` and `<!-- end x -->` replaced."""
    text = (DOCS / name).read_text(encoding="utf-8")
    for block, content in blocks.items():
        begin, end = f"<!-- begin {block}: written by `make docs` -->\n", f"<!-- end {block} -->"
        if text.count(begin) != 1 or text.count(end) != 1:
            raise ValueError(f"{name} needs exactly one block {block}")
        before, _, rest = text.partition(begin)
        text = before + begin + f"\n{content}\n\n" + end + rest.partition(end)[2]
    return text


def _examples(name: str) -> list[str]:
    """The Markdown code blocks of a page."""
    text = (DOCS / name).read_text(encoding="utf-8")
    return [found[2] for found in re.finditer(r"^(`{3,4})markdown\n(.*?)^\1$", text, re.MULTILINE | re.DOTALL)]


def _protocol() -> dict[str, dict[str, str]]:
    """protocol.toml, which must describe exactly what the code has."""
    said: dict[str, dict[str, str]] = tomllib.loads((DOCS / "protocol.toml").read_text(encoding="utf-8"))
    wanted = {
        "headers": {name for kind in MESSAGE_TYPES.values() for name in kind.header_fields()},
        "phases": {phase.value for phase in Phase},
        "triggers": {trigger.name for trigger in lifecycle.Trigger},
    }
    for part, names in wanted.items():
        if names != said[part].keys():
            raise ValueError(f"protocol.toml, {part}: {', '.join(sorted(names ^ said[part].keys()))}")
    return said


def _names(headers_: tuple[str, ...]) -> str:
    return ", ".join(f"`{name}`" for name in headers_)


def _where(header: str) -> str:
    """The message types that have a header, or all."""
    if header in Message.header_fields():
        return "all messages"
    return ", ".join(f"`{word}`" for word, kind in MESSAGE_TYPES.items() if header in kind.header_fields())


def _value(header: str, field: FieldInfo, patterns: dict[str, str]) -> str:
    """The form of a header's value, from its converter and model."""
    if header in patterns:
        return patterns[header]
    if header in headers.RANGES:
        low, high = headers.RANGES[header]
        return f"{low} to {high}"
    converter = headers.CONVERTERS.get(header)
    for known, form in (
        (headers.identifier, "id"),
        (headers.agent, "id or `pool:ROLE`"),
        (headers.time, "time"),
        (headers.boolean, "`true` or `false`"),
        (headers.money, "US dollars"),
    ):
        if converter is known:
            return form
    words = _enumerated(TypeAdapter(field.annotation or str).json_schema())
    return " or ".join(f"`{word}`" for word in words) or "list of ids"


def _enumerated(schema: object) -> list[str]:
    """Every word that a JSON schema lists, in any part of it."""
    if isinstance(schema, list):
        return [word for part in schema for word in _enumerated(part)]
    if not isinstance(schema, dict):
        return []
    return [str(word) for word in schema.get("enum", ())] + _enumerated(list(schema.values()))


def main() -> None:
    for name, page in PAGES.items():
        (DOCS / name).write_text(page(), encoding="utf-8")
        print(f"docs/{name}")


if __name__ == "__main__":
    main()
