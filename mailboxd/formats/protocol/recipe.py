"""Recipes: plans with parameters, one YAML file each. Expanded, a recipe is a task with an ordinary plan.

    about: Several steps in a fixed order
    parameters:
      goal: What the whole is for                # required
      steps: {about: The steps in order, example: [Collect it, Draft it]}
      agent: {about: Who does them, default: self}
    title: ${goal}                               # also: instructions, context, expected_output, acceptance_criteria
    subtasks:                                    # a plan, with parameters in its texts
      step:
        each: ${steps}
        agent: ${agent}
        description: ${item}
        depends_on: [previous]
    synthesis: step

A parameter whose default or example is a list takes a list. A text that is nothing but a parameter is its value. A
subtask with `each` becomes one for each item, called `step-1`, `step-2` ...; in it `${item}` is the item and `previous`
the one before. What depends on `step` depends on all of them; as synthesis it is the last.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mailboxd.core.sanitize import excerpt
from mailboxd.core.vocabulary import is_id
from mailboxd.errors import ConfigError, MessageError
from mailboxd.formats.protocol import prompts, strict_yaml
from mailboxd.formats.protocol.deadlines import Calendar
from mailboxd.formats.protocol.headers import Source
from mailboxd.formats.protocol.plan import Dag, parse_dag
from mailboxd.formats.protocol.strict_yaml import Yaml, flow

_TEXTS = ("instructions", "context", "expected_output")
_KEYS = ("about", "parameters", "title", *_TEXTS, "acceptance_criteria", "subtasks", "synthesis")
_PARAMETER = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_ITEM, _PREVIOUS = "item", "previous"
MAX_ITEMS = 1000

Values = Mapping[str, Yaml]


@dataclass(frozen=True, slots=True)
class Parameter:
    name: str
    about: str
    default: Yaml | None = None
    """Without one it is required."""
    example: Yaml = ""

    @property
    def is_list(self) -> bool:
        return isinstance(self.example if self.default is None else self.default, list)


@dataclass(frozen=True, slots=True)
class Recipe:
    """A recipe as its file says it."""

    name: str
    about: str
    parameters: tuple[Parameter, ...]
    body: Values
    path: str


@dataclass(frozen=True, slots=True)
class Expanded:
    """The task of a recipe with its parameters filled in: its title, the sections of its spec, its plan."""

    title: str
    texts: Mapping[str, str]
    criteria: tuple[str, ...]
    dag: Dag


@dataclass(frozen=True, slots=True)
class Recipes:
    """The recipes of a workspace, whose directory `own` comes before the packaged ones."""

    own: Path | None = None

    def names(self) -> list[str]:
        found = [path.stem for place in self._places() if place.is_dir() for path in place.glob("*.yaml")]
        return sorted({name for name in found if is_id(name)})

    def all(self) -> Iterator[tuple[str, Recipe | ConfigError | MessageError]]:
        """Each by its name, or why it cannot be used."""
        for name in self.names():
            try:
                yield name, self.load(name)
            except (ConfigError, MessageError) as error:
                yield name, error

    def load(self, name: str) -> Recipe:
        """Raises ConfigError for a file that cannot be read, MessageError for a name or content that is wrong."""
        if is_id(name):
            for place in self._places():
                if os.path.lexists(path := place / f"{name}.yaml"):
                    return parse_recipe(prompts.read_override(path), name, str(path))
        near = difflib.get_close_matches(name, self.names(), 1)
        hint = f"Did you mean {near[0]}?" if near else f"There is {', '.join(self.names())}."
        raise MessageError("unknown-recipe", f"there is no recipe {excerpt(name)}", hint)

    def text(self, recipe: Recipe) -> str:
        return prompts.read_override(Path(recipe.path))

    def _places(self) -> tuple[Path, ...]:
        packaged = prompts.packaged() / "recipes"
        return (packaged,) if self.own is None else (self.own, packaged)


def parse_recipe(text: str, name: str, path: str) -> Recipe:
    """Raises MessageError with line and field."""
    loaded = strict_yaml.load(text, path=path)
    source = Source(path, 1, loaded.lines, loaded.plain)
    top = source.mapping(loaded.value, ())
    if unknown := next((key for key in top if key not in _KEYS), None):
        hint = f"A recipe has {', '.join(_KEYS)}."
        source.fail("unknown-field", f"a recipe has no key {excerpt(unknown)}", (unknown,), hint)
    if missing := next((key for key in ("about", "title", "subtasks") if top.get(key, "") == ""), None):
        source.fail("missing-field", f"the recipe has no {missing}", ())
    parameters = tuple(
        _parameter(source, key, said)
        for key, said in source.mapping(top.get("parameters", ""), ("parameters",)).items()
    )
    known = {parameter.name for parameter in parameters} | {_ITEM}
    body = {key: value for key, value in top.items() if key not in ("about", "parameters")}
    for used in _PARAMETER.findall(flow(body)):
        if used not in known:
            hint = f"Parameters: {', '.join(sorted(known - {_ITEM})) or 'none'}."
            source.fail("unknown-field", f"${{{used}}} is not a parameter", (), hint)
    return Recipe(name, source.text(top["about"], ("about",)), parameters, body, path)


def _parameter(source: Source, name: str, said: Yaml) -> Parameter:
    where = ("parameters", name)
    if not _PARAMETER.fullmatch(f"${{{name}}}") or name == _ITEM:
        source.fail("bad-id", f"{excerpt(name)} cannot be the name of a parameter", where, "Letters, digits and _.")
    if isinstance(said, str):
        return Parameter(name, said)
    fields = source.mapping(said, where)
    if unknown := next((key for key in fields if key not in ("about", "default", "example")), None):
        source.fail("unknown-field", f"a parameter has no key {excerpt(unknown)}", (*where, unknown))
    about = source.text(fields.get("about", ""), (*where, "about"))
    return Parameter(name, about, fields.get("default"), fields.get("example", ""))


def example_values(recipe: Recipe) -> dict[str, Yaml]:
    """An example value for each parameter."""
    return {one.name: one.default if one.default is not None else one.example or one.name for one in recipe.parameters}


def values_of(recipe: Recipe, given: Sequence[tuple[str, str]]) -> dict[str, Yaml]:
    """The values of the parameters; a list is given with commas, or by naming it several times.

    Raises MessageError for a parameter that is unknown, missing, or given twice.
    """
    parameters = {one.name: one for one in recipe.parameters}
    said: dict[str, list[str]] = {}
    for name, value in given:
        if name not in parameters:
            near = difflib.get_close_matches(name, parameters, 1)
            hint = f"Did you mean {near[0]}?" if near else f"It has {', '.join(parameters) or 'none'}."
            raise MessageError("unknown-field", f"{recipe.name} has no parameter {excerpt(name)}", hint)
        said.setdefault(name, []).append(value)
    values: dict[str, Yaml] = {}
    missing = []
    for name, one in parameters.items():
        found = said.get(name)
        if found is None and one.default is None:
            missing.append(f"{name} ({one.about})")
        elif found is None:
            values[name] = one.default or ""
        elif one.is_list:
            parts = found if len(found) > 1 else found[0].split(",")
            values[name] = [part.strip() for part in parts if part.strip()]
        elif len(found) > 1:
            raise MessageError("field-range", f"{name} is given {len(found)} times", "It takes one value.")
        else:
            values[name] = found[0]
    if missing:
        problem = f"{recipe.name} needs {', '.join(missing)}"
        raise MessageError("missing-field", problem, f"Give it with `--with {missing[0].partition(' ')[0]}=...`.")
    return values


def expand(recipe: Recipe, values: Values, calendar: Calendar | None = None) -> Expanded:
    """The task that the recipe describes; `calendar` says what its dates mean.

    Raises MessageError as for any plan, with the field.
    """
    subtasks, synthesis = recipe.body.get("subtasks", ""), _filled(recipe.body.get("synthesis", ""), values)
    if not isinstance(subtasks, dict):
        raise MessageError("wrong-type", "the subtasks are not a mapping", path=recipe.path, field="subtasks")
    children, names = _children(subtasks, values)
    if isinstance(synthesis, str) and synthesis in names:
        synthesis = names[synthesis][-1]
    plan: dict[str, Yaml] = {"subtasks": children, **({"synthesis": synthesis} if synthesis else {})}
    texts = {key: _text(_filled(recipe.body[key], values)) for key in _TEXTS if recipe.body.get(key, "") != ""}
    title = " ".join(_text(_filled(recipe.body["title"], values)).split())
    criteria = _filled(recipe.body.get("acceptance_criteria", []), values)
    listed = tuple(map(_text, criteria if isinstance(criteria, list) else [criteria]))
    return Expanded(title, texts, listed, parse_dag(flow(plan), path=recipe.path, calendar=calendar))


def _children(subtasks: Values, values: Values) -> tuple[dict[str, Yaml], dict[str, list[str]]]:
    """The children, and of each that was repeated the names that it got."""
    found: dict[str, Yaml] = {}
    names: dict[str, list[str]] = {}
    for key, said in subtasks.items():
        items = _filled(said["each"], values) if isinstance(said, dict) and "each" in said else None
        if items is None or not isinstance(said, dict):
            found[key] = _child(said, values, names, "")
            continue
        if not isinstance(items, list) or not 1 <= len(items) <= MAX_ITEMS:
            raise MessageError("wrong-type", f"`each` of {excerpt(key)} is not a list of 1 to {MAX_ITEMS} items")
        body = {name: value for name, value in said.items() if name != "each"}
        before = ""
        for number, item in enumerate(items, 1):
            name = f"{key}-{number}"
            found[name] = _child(body, {**values, _ITEM: item}, names, before)
            before = name
        names[key] = [f"{key}-{number}" for number in range(1, len(items) + 1)]
    return found, names


def _child(said: Yaml, values: Values, names: Mapping[str, list[str]], before: str) -> Yaml:
    if not isinstance(said, dict):
        return _filled(said, values)
    child = {key: _filled(value, values) for key, value in said.items() if key != "subtasks"}
    if isinstance(inner := said.get("subtasks", ""), dict):
        child["subtasks"], _ = _children(inner, values)
    if "depends_on" in child:
        needs = child["depends_on"]
        each = needs if isinstance(needs, list) else [part.strip() for part in _text(needs).split(",")]
        real = {_PREVIOUS: [before] if before else [], **names}
        child["depends_on"] = [name for need in each for name in real.get(_text(need), [_text(need)])]
    when = child.get("when", "")
    if isinstance(when, dict) and _PREVIOUS in when:
        child["when"] = {
            before if of == _PREVIOUS else of: one for of, one in when.items() if of != _PREVIOUS or before
        }
    return child


def _filled(value: Yaml, values: Values) -> Yaml:
    if isinstance(value, dict):
        return {key: _filled(item, values) for key, item in value.items()}
    if isinstance(value, list):
        parts = [(item, _filled(item, values)) for item in value]
        spread = [new if isinstance(new, list) and isinstance(old, str) else [new] for old, new in parts]
        return [one for some in spread for one in some]
    if whole := _PARAMETER.fullmatch(value.strip()):
        return values.get(whole[1], value)
    return _PARAMETER.sub(lambda match: _text(values.get(match[1], match[0])), value)


def _text(value: Yaml) -> str:
    return ", ".join(_text(one) for one in value) if isinstance(value, list | dict) else value
