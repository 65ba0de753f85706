"""The screen of `watch` in which a person acts (extra `tui`): what waits, the tasks, and the forms, as on the page.

It shows the page's models and sends the page's forms, so both do the same. All texts are untrusted: they are put on the
screen as `Text`, which has no markup.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Button, Checkbox, DataTable, Footer, Input, Static

from mailboxd.cli.operator_shell import require_operator
from mailboxd.cli.text import COLORS, counted
from mailboxd.core.operator_orders import OPERATOR, Field, FieldKind
from mailboxd.core.sanitize import for_terminal, one_line
from mailboxd.core.vocabulary import State, state_words
from mailboxd.errors import MailboxdError, Refused
from mailboxd.formats.drawing.style import fit, style_of
from mailboxd.ledger.attention import DISMISSIBLE
from mailboxd.ledger.task_queries import Filter
from mailboxd.surfaces.web.page_models import PageModels, TaskRecord, WorkspaceSummary, search
from mailboxd.surfaces.web.workspaces import HELD, FormActions, WebWorkspace

REFRESH_SECONDS = 1.0
_OTHER_COLUMNS = 56
"""Characters of a line beside the title."""
_LEAST_TITLE = 24
Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Choice:
    """Something that can be done about a line: the form's field and value, its label, and the fields that it takes."""

    name: str
    value: str
    label: str
    fields: tuple[Field, ...] = ()
    ends: bool = False
    """It ends the work: it is asked about once more, and can be taken back for some seconds."""


_NOTE = Field("note", FieldKind.TEXT, "Note", "Recorded with the decision.")
_REASON = Field("note", FieldKind.TEXT, "Reason", "Write why.", required=True)
_DECISIONS = (
    Choice("decision", "approved", "Approve", (_NOTE,)),
    Choice("decision", "request_changes", "Ask for changes", (_NOTE,)),
    Choice("decision", "rejected", "Reject", (_REASON,), ends=True),
)
_RETRY = ("retry", "unblock-retry")


def choices(row: Row) -> tuple[Choice, ...]:
    """The orders that make sense for a line of the board."""
    if row.get("approval"):
        return _DECISIONS
    orders = [Choice("order", order.name, order.label, fields, order.ends) for order, fields in row.get("orders", ())]
    dismissal = [Choice("dismiss", row["id"], "Dismiss")] if row.get("kind") in DISMISSIBLE else []
    return (*orders, *dismissal)


Do = Callable[[Mapping[str, str]], str]


class Act(ModalScreen[str | None]):
    """Shows what would be done, takes the fields, and does it; what is refused is said here, and the fields stay.

    What ends the work stands apart, and opens a screen of its own, with fields of its own.
    """

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss", "Back")]
    AUTO_FOCUS = "Input, Button"

    def __init__(self, title: str, text: str, offered: Sequence[Choice], do: Do) -> None:
        super().__init__()
        self._title = title
        self._text = text
        self._offered = offered
        self._do = do
        self._asks_once = len(offered) == 1 and offered[0].ends

    def compose(self) -> ComposeResult:
        here = [choice for choice in self._offered if self._asks_once or not choice.ends]
        fields = {field.name: field for choice in here for field in choice.fields}
        with Vertical(id="act"):
            yield Static(Text(self._title, style="bold"))
            with VerticalScroll(id="exact"):
                yield Static(Text(self._text))
            for field in fields.values():
                if field.kind is FieldKind.FLAG:
                    yield Checkbox(field.label, id=f"field-{field.name}")
                else:
                    yield Input(placeholder=field.label, id=f"field-{field.name}")
            yield Static(id="refused")
            with Horizontal(id="buttons"):
                for number, choice in enumerate(self._offered):
                    if choice in here:
                        yield Button(Text(choice.label), id=f"do{number}", variant="default" if number else "primary")
                yield Button("Back, change nothing", id="back")
            if len(here) < len(self._offered):
                yield Static(Text("Ends it:", style="dim"))
                with Horizontal(id="ending"):
                    for number, choice in enumerate(self._offered):
                        if choice.ends:
                            yield Button(Text(f"{choice.label}…"), id=f"do{number}", variant="error")

    def on_input_submitted(self) -> None:
        first = self._offered[0]
        if first.name == "decision" or first.ends:
            self.query_one("#do0", Button).focus()  # one key more for a side effect, or an end
        elif not any(choice.ends for choice in self._offered[:1]):
            self._try(0)

    def on_button_pressed(self, event: Button.Pressed) -> None:
        name = str(event.button.id)
        if name == "back":
            self.dismiss(None)
            return
        number = int(name.removeprefix("do"))
        choice = self._offered[number]
        if choice.ends and not self._asks_once:
            asked = "This ends it. Nothing is stopped for ten seconds: until then, u takes it back."
            self.app.push_screen(Act(f"{choice.label}: {self._title}", asked, (choice,), self._do), self.dismiss_if)
        else:
            self._try(number)

    def dismiss_if(self, said: str | None) -> None:
        """Close, too, if the screen above has done it."""
        if said:
            self.dismiss(said)

    def _try(self, number: int) -> None:
        choice = self._offered[number]
        form = {field.name: self._written(field) for field in choice.fields}
        try:
            done = self._do({choice.name: choice.value, **form})
        except MailboxdError as error:
            said = f"{error.problem}. {error.hint}".strip() if isinstance(error, Refused) else str(error)
            self.query_one("#refused", Static).update(Text(for_terminal(said), style="red"))
            return
        self.dismiss(f"{choice.label}: {'held for 10 s, u takes it back' if done == HELD else 'recorded'}")

    def _written(self, field: Field) -> str:
        if field.kind is FieldKind.FLAG:
            return "1" if self.query_one(f"#field-{field.name}", Checkbox).value else ""
        return self.query_one(f"#field-{field.name}", Input).value


class Board(App[None]):
    """The tasks of one workspace, and everything that waits for a person."""

    CSS = """
    #head { height: 1; }
    #words { display: none; }
    DataTable { height: 1fr; }
    #detail { height: 40%; border-top: solid $primary; padding: 0 1; }
    Act { align: center middle; }
    #act { width: 90%; max-width: 100; height: auto; max-height: 90%; border: solid $primary; padding: 1 2; }
    #act { background: $surface; }
    #exact { height: auto; max-height: 16; }
    #buttons, #ending { height: auto; }
    #buttons Button, #ending Button { margin-right: 1; }
    """
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j", "step(1)", "Next", show=False),
        Binding("k", "step(-1)", "Previous", show=False),
        Binding("a", "act('')", "Answer or approve"),
        Binding("r", "act('retry')", "Retry"),
        Binding("c", "act('cancel')", "Cancel task"),
        Binding("u", "undo", "Undo"),
        Binding("slash", "ask('filter')", "Filter"),
        Binding("s", "ask('search')", "Search"),
        Binding("escape", "clear", "All"),
        Binding("q", "quit", "Quit"),
    ]

    def __init__(self, models: PageModels, actions: FormActions, workspace: WebWorkspace) -> None:
        super().__init__()
        self._models = models
        self._actions = actions
        self._workspace = workspace
        self._rows: dict[str, Row] = {}
        self._asks = ""
        self._words = ""
        self._found: str = ""

    def compose(self) -> ComposeResult:
        yield Static(id="head")
        yield Input(id="words")
        yield DataTable(cursor_type="row")
        with VerticalScroll(id="detail", can_focus=False):
            yield Static(id="told")
        yield Footer()

    def on_mount(self) -> None:
        self.query_one(DataTable).add_columns("State", "Title", "Task", "Agent")
        self.query_one(DataTable).focus()
        self.set_interval(REFRESH_SECONDS, self.refresh_rows)
        self.refresh_rows()

    # What is shown

    def refresh_rows(self) -> None:
        """Read everything again; the cursor stays on its line."""
        if not self.query("#head"):
            return  # a form is open, or the screen is closing
        shown = self._models.workspace(self._workspace, Filter(words=self._words), 1)
        rows: dict[str, Row] = {
            f"i{item['target']}": item for item in shown["workspace"]["attention"] if not self._words
        }
        held = {f"h{row['id']}": {**row, "agent": row["by"], "held": True} for row in shown["workspace"]["held"]}
        waiting = {item["task"] for item in rows.values()}
        rest = [row for row in shown["rows"] if row["local_id"] not in waiting]
        rows |= {f"t{row['local_id']}": row for row in (self._hits() if self._found else rest)}
        rows = held | rows
        self.query_one("#head", Static).update(_head(shown["workspace"]))
        if rows == self._rows:
            return
        table = self.query_one(DataTable)
        key = self._key()
        self._rows = rows
        table.clear()
        for name, row in rows.items():
            table.add_row(*_cells(row, max(self.size.width - _OTHER_COLUMNS, _LEAST_TITLE)), key=name)
        if key in rows:
            table.move_cursor(row=list(rows).index(key))

    def _hits(self) -> list[Row]:
        try:
            found = search([self._workspace], self._found, "")
        except MailboxdError as error:
            self.notify(str(error), severity="error", markup=False)
            return []
        return [
            {"local_id": hit["task"], "title": hit["title"] or hit["snippet"], "phase": hit["phase"],
             "need": hit["need"], "agent": hit["agents"][0] if hit["agents"] else ""}
            for hit in found["hits"] if hit["task"]
        ]  # fmt: skip

    def _key(self) -> str:
        table = self.query_one(DataTable)
        if not table.row_count:
            return ""
        return str(table.coordinate_to_cell_key(table.cursor_coordinate).row_key.value)

    def on_data_table_row_highlighted(self) -> None:
        self._tell(whole=False)

    def on_data_table_row_selected(self) -> None:
        self._tell(whole=True)

    def _tell(self, *, whole: bool) -> None:
        if not self.query("#told"):
            return  # the screen is closing
        row = self._rows.get(self._key())
        if row is None:
            return
        told = _item_text(row) if "target" in row and not whole else ""
        name = row.get("task") or row.get("local_id") or ""
        if not told and name:
            try:
                task = self._models.record(self._workspace, name)
                told = _task_text(task)
                if whole:
                    self._models.opened(self._workspace, task)
            except MailboxdError as error:
                told = str(error)
        self.query_one("#told", Static).update(Text(for_terminal(told or _item_text(row))))
        self.query_one("#detail", VerticalScroll).scroll_home(animate=False)

    # Actions

    def action_step(self, by: int) -> None:
        table = self.query_one(DataTable)
        table.move_cursor(row=max(0, min(table.cursor_coordinate.row + by, table.row_count - 1)))

    def action_act(self, wanted: str) -> None:
        row = self._rows.get(self._key())
        if row is None:
            return
        if row.get("held"):
            self.notify("It is held for some seconds: u takes it back.", markup=False)
            return
        if "target" not in row:  # a task, whose orders are not part of its line
            try:
                row = {**row, "orders": self._models.record(self._workspace, row["local_id"])["orders"]}
            except MailboxdError as error:
                self.notify(str(error), severity="error", markup=False)
                return
        offered = choices(row)
        if wanted:
            names = _RETRY if wanted == "retry" else (wanted,)
            offered = tuple(choice for choice in offered if choice.value in names)
        if not offered:
            self.notify("Nothing of that kind can be done about this line.", severity="warning")
            return
        title = for_terminal(one_line(row.get("title") or row.get("text") or ""))
        self.push_screen(Act(title, for_terminal(_item_text(row)), offered, self._doing(row)), self._done)

    def action_undo(self) -> None:
        """Take back what is held about the task of this line."""
        row = self._rows.get(self._key())
        if row is None:
            return
        try:
            require_operator(OPERATOR)
            self._actions.undo(self._workspace, row.get("task") or row.get("local_id") or "")
        except MailboxdError as error:
            self.notify(error.problem if isinstance(error, Refused) else str(error), severity="warning", markup=False)
            return
        self._done("taken back: nothing was stopped")

    def _doing(self, row: Row) -> Callable[[Mapping[str, str]], str]:
        def do(form: Mapping[str, str]) -> str:
            require_operator(OPERATOR)
            if "dismiss" in form:
                return self._actions.dismiss(self._workspace, form["dismiss"])
            if "decision" in form:
                approval = row["approval"]
                return self._actions.decide(self._workspace, approval["id"], {**form, "digest": approval["digest"]})
            return self._actions.order(self._workspace, row.get("task") or row.get("local_id") or row["id"], form)

        return do

    def _done(self, said: str | None) -> None:
        if said:
            self.notify(said, markup=False)
            self.refresh_rows()

    # Filter and search

    def action_ask(self, what: str) -> None:
        self._asks = what
        words = self.query_one("#words", Input)
        words.placeholder = "Words of titles and names" if what == "filter" else "Words in messages, results and events"
        words.display = True
        words.value = ""
        words.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        if event.input.id == "words" and self._asks == "filter":
            self._words, self._found = event.value[:200], ""
            self.refresh_rows()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        if event.input.id == "words":
            if self._asks == "search":
                self._words, self._found = "", event.value[:200].strip()
                self.refresh_rows()
            self.query_one(DataTable).focus()

    def action_clear(self) -> None:
        self._asks = self._words = self._found = ""
        words = self.query_one("#words", Input)
        words.value = ""
        words.display = False
        self.query_one(DataTable).focus()
        self.refresh_rows()


# Texts


def _head(workspace: WorkspaceSummary) -> Text:
    states = counted(workspace["states"])
    runs = "" if workspace["running"] else ", no daemon"
    return Text(for_terminal(f"{workspace['agent'] or workspace['name']}  {workspace['grade']}{runs}  {states}"))


def _cells(row: Row, room: int) -> tuple[Text, Text, Text, Text]:
    if row.get("held"):
        what = f"{row['label']}: {row['title']} (u takes it back)"
        when = Text(f"until {row['due'][11:19]}", style="yellow")
        return when, Text(fit(one_line(what), room)), Text(one_line(row["task"])), Text(one_line(row["agent"]))
    state = State.NEEDS_YOU if "target" in row else state_words(row["phase"], row["need"])
    style = style_of(state)
    title = ": ".join(filter(None, (row["title"], row.get("text"))))
    name = row["task"] if "target" in row else row["local_id"]
    return (
        Text(f"{style.symbol} {style.word}", style=COLORS.get(style.tone, "")),
        Text(fit(one_line(title), room)),
        Text(one_line(name or "")),
        Text(one_line(row["agent"])),
    )


def _item_text(row: Row) -> str:
    lines = [row.get("text", ""), row.get("question") or row.get("details", "")]
    if approval := row.get("approval"):
        lines += [f"Risk: {approval['risk']}" if approval["risk"] else "", approval["preview"] or ""]
        lines.append(f"Digest: {approval['digest']}")
    lines.append(row.get("command", ""))
    return "\n\n".join(line for line in lines if line)


def _task_text(task: TaskRecord) -> str:
    lines = [f"{task['title']}\n{task['local_id']}, {state_words(task['phase'], task['need'])}, {task['agent']}"]
    if task["question"]:
        lines.append(f"It asks {task['question'].to}: {task['question'].text}")
    lines.append("\n".join(f"{'  ' * cause.depth}{cause.task} {cause.text}" for cause in task["causes"]))
    if task["results"] or task["error"]:
        lines.append(task["results"] or task["error"])
    lines.append("\n".join(f"{step.at[11:19]}  {step.text}" for step in task["milestones"]))
    return "\n\n".join(lines)
