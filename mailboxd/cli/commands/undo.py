"""`mailboxd undo ID`: a performed action shall be taken back."""

from __future__ import annotations

from mailboxd.cli.deciding import approval_argument, take_back
from mailboxd.cli.session import Session, verb
from mailboxd.errors import EXIT_CONFIG, EXIT_NO, EXIT_UNAVAILABLE


@verb(
    "undo",
    "undo 3f9k2q",
    exits={
        EXIT_NO: "it declares no way back, was not performed, or is being taken back",
        EXIT_UNAVAILABLE: "no workspace, or no such approval",
        EXIT_CONFIG: "the configuration is wrong",
    },
)
@approval_argument()
def command(session: Session, id: str) -> None:
    """Ask for an action to be taken back, with the command that it declared for that.

    The daemon prepares it, and then it waits for an approval like any other action.
    """
    take_back(session, id)
