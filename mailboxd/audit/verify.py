"""Whether everything is still as recorded: pages, log, tables, files, heads. Changes nothing; a daemon may run."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from mailboxd import heads
from mailboxd.audit.files import check_files, present, stranger
from mailboxd.audit.finding import LOOK, REBUILD, RESTORE, Account, Finding
from mailboxd.progress import Progress
from mailboxd.store import evidence, log
from mailboxd.store.report import Report
from mailboxd.store.whole import integrity_problem
from mailboxd.workspace.layout import Workspace


@dataclass(slots=True)
class Audit:
    """One look at one workspace. `check` says whether a head was signed by the key of this workspace; None = no key.

    `noted` is a head that somebody wrote down elsewhere: number of the event and hash.
    """

    ws: Workspace
    report: Report
    progress: Progress
    check: heads.Check | None = None
    noted: tuple[int, str] | None = None

    def perform(self) -> Account:
        """All checks in turn, until one finds something. Raises WorldError when something cannot be read."""
        account = Account()
        account.finding = self._pages()  # before the snapshot, which cannot even be ended on some damaged files
        if account.finding is not None:
            return account
        checks: tuple[Callable[[Account], Finding | None], ...] = (
            self._chain,
            self._heads,
            self._tables,
            self._bodies,
            self._files,
            self._strangers,
        )
        with self.report.snapshot():
            for check in checks[:-1]:
                account.finding = check(account)
                if account.finding is not None:
                    return account
        account.finding = self._strangers(account)  # after the snapshot: mail that moves meanwhile is on record then
        return account

    def _pages(self) -> Finding | None:
        """SQLite's own check: a page that no query of ours reads is damaged as well."""
        damage = integrity_problem(self.report.db, self.progress)
        if not damage:
            return None
        return Finding("pages", f".mailboxd/{self.ws.database.name}", damage, "a file that SQLite finds sound", RESTORE)

    def _chain(self, account: Account) -> Finding | None:
        count = account.checked["events"] = self.report.last_event()
        problem = log.verify_chain(self.report.db, self.progress, count)
        if problem is None:
            return None
        where, _, what = problem.partition(" is ")
        return Finding("chain", where, f"it is {what}", "an event that follows from the one before it", REBUILD)

    def _tables(self, account: Account) -> Finding | None:
        found = log.differences(self.report.db, self.progress, account.checked["events"])
        account.checked["tables"] = len(log.REPLAYED)
        if not found:
            return None
        table, _, what = found[0].partition(": ")
        return Finding("tables", f"the table {table}", what, "what the events add up to", REBUILD)

    def _bodies(self, _account: Account) -> Finding | None:
        spoiled = evidence.spoiled_body(self.report.db)
        if spoiled is None:
            return None
        remedy = "Restore a backup of the database; the file in archive/ or rejected/ may still be right."
        message, sha256 = spoiled
        if sha256 is None:
            return Finding("bodies", f"the kept bytes of {message}", "they were moved", "no message of that id", remedy)
        return Finding("bodies", f"the kept bytes of {sha256}", "they were changed", f"sha256 {sha256}", remedy)

    def _files(self, account: Account) -> Finding | None:
        total = len(evidence.paths(self.report.db))
        account.checked["files"] = total
        return check_files(self.ws, evidence.filed(self.report.db), total, self.progress)

    def _strangers(self, account: Account) -> Finding | None:
        found = list(present(self.ws))
        account.checked["present"] = len(found)
        with self.report.snapshot():
            known, (judged, ordered) = evidence.paths(self.report.db), evidence.on_the_way(self.report.db)
        for path in found:
            if path not in known and (finding := stranger(self.ws, path, judged, ordered)) is not None:
                return finding
        return None

    # -------------------------------------------------------------- heads

    def _heads(self, account: Account) -> Finding | None:
        where = f".mailboxd/{heads.FILE}"
        try:
            written = heads.read(self.ws)
        except ValueError as error:
            return Finding("heads", f"{where} {error}", "it was changed", "a line as the daemon writes it", LOOK)
        account.checked["heads"] = len(written)
        if not written:
            account.notes.append("no head of the log was written yet: that its end is missing would not show")
        elif self.check is None:
            account.notes.append("the heads are not checked for signatures: there is no key (`mailboxd keys`)")
        return next(filter(None, (*self._lines(where, written), self._remembered(where, written), self._noted())), None)

    def _lines(self, where: str, written: list[heads.Head]) -> Iterator[Finding | None]:
        before = ""
        for number, head in enumerate(written, 1):
            line = f"{where} line {number}"
            if head.before != before:
                expected = "the hash of the line before it"
                yield Finding("heads", line, "a line before it was removed or changed", expected, LOOK)
            if self.check is not None and head.signature and not self.check(head.signed(), head.signature):
                yield Finding("heads", line, "its signature is not valid", "a signature of this workspace's key", LOOK)
            if self.check is not None and not head.signature and number > 1 and written[number - 2].signature:
                yield Finding("heads", line, "it is not signed", "a signature, as the line before it has", LOOK)
            yield self._against(line, head.seq, head.hash)
            before = heads.digest(head)

    def _against(self, where: str, seq: int, hash_: str) -> Finding | None:
        found = evidence.hash_at(self.report.db, seq)
        if found == hash_:
            return None
        last = self.report.last_event()
        if found is None:
            return Finding("heads", where, f"the log ends at event {last}", f"event {seq} with hash {hash_}", REBUILD)
        return Finding("heads", where, f"event {seq} has the hash {found}", f"hash {hash_}", REBUILD)

    def _remembered(self, where: str, written: list[heads.Head]) -> Finding | None:
        noted = evidence.meta(self.report.db, heads.NOTED)
        if noted is None:
            return None
        seq, line = json.loads(noted)
        if any(heads.digest(head) == line for head in written):
            return None
        return Finding("heads", where, "its last lines are missing", f"a line for event {seq}, hash {line}", LOOK)

    def _noted(self) -> Finding | None:
        return None if self.noted is None else self._against("the head that was noted elsewhere", *self.noted)
