"""`mailboxd graph TASK`: a task and what is below it as a drawing."""

from __future__ import annotations

import click

from mailboxd.cli.session import Session, task_argument, verb
from mailboxd.cli.text import say, to_json

_MOST = 2_000


@verb(
    "graph",
    "graph q3-report",
    "graph q3-report --format svg > q3.svg",
    "graph q3-report --format dot | dot -Tpdf > q3.pdf",
    "graph q3-report --format html > q3.html",
)
@task_argument()
@click.option(
    "--format", "form", type=click.Choice(["mermaid", "dot", "svg", "html"]), default="mermaid", show_default=True,
    help="mermaid is for Markdown, dot for Graphviz; svg and html need nothing else.",
)  # fmt: skip
@click.option(
    "--most", type=click.IntRange(10, _MOST), default=200, show_default=True, help="At most so many nodes are drawn."
)
def command(session: Session, task: str, form: str, most: int) -> None:
    """Draw TASK and what is below it: who needs whose result, and in which phase each is.

    Of a large tree what is under way is drawn first; tasks that are alike stand as one, with their number. With --json
    the nodes and edges of the drawing.
    """
    from mailboxd.drawing import text
    from mailboxd.drawing.marks import document
    from mailboxd.drawing.svg import graph_svg
    from mailboxd.store.outline import outline

    with session.report() as report:
        task_id = report.find(task)
        graph, name = outline(report, task_id, most=most), report.local_id(task_id)
    if session.as_json:
        from dataclasses import asdict

        say(to_json(asdict(graph)))
    elif form in ("mermaid", "dot"):
        say((text.mermaid if form == "mermaid" else text.dot)(graph), newline=False)
    else:
        drawn = graph_svg(graph, f"Tasks of {name}")
        say(drawn if form == "svg" else document(name, drawn), newline=form == "svg")
