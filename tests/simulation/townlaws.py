"""What must hold between the agents of a town, for what no single store can see (protocol section 7)."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter

from tests.simulation.house import House
from tests.simulation.town import Town, attempt_of

_WORK = re.compile(r"made by (\w+) in [\w.]+")

_FAIR = frozenset({"stale-attempt", "spoofed-from"})
"""Rules by which a message that came much later, or from a stranger, is refused."""


def standing(town: Town) -> None:
    """Between any two steps."""
    for house in town.houses.values():
        _judged_once(house)
        _begun_once(house)
        _refused_for_nothing(town, house)
        _nothing_vanished(house)
        _written_once(house)
        asked_as_recorded(house)


def resting(town: Town) -> None:
    """When nothing happens any more."""
    for house in town.houses.values():
        assert house.filed() == house.dropped, f"{house.name}: an inbox's files are not those of archive and rejected"
        assert not [path.name for path in house.ws.inbox.iterdir()], f"{house.name}: something is left in the inbox"
        _results_are_what_was_made(town, house)
        _sent_is_there(house)
        _cancels_are_of_what_has_ended(house)
        _every_end_is_told(house)
        ends_as_asked(house)
    _what_was_sent_was_judged(town)
    _both_sides_agree(town)


# -------------------------------------------------------------- within one house


def _judged_once(house: House) -> None:
    """A message counts once, however often it arrives (7.2)."""
    row = house.store.db.execute(
        "SELECT message_id, count(*) FROM v_messages WHERE direction = 'in' AND verdict = 'accepted'"
        " AND message_id IS NOT NULL GROUP BY message_id HAVING count(*) > 1"
    ).fetchone()
    assert row is None, f"{house.name} has accepted the message {row[0]} {row[1]} times"
    row = house.store.db.execute(
        # by the log, since a clock that is set back gives smaller ids
        "WITH judged AS (SELECT json_extract(data, '$.message.id') AS id, min(seq) AS seq FROM v_events GROUP BY 1)"
        " SELECT b.message_id, b.verdict FROM v_messages a JOIN v_messages b ON a.message_id = b.message_id"
        " JOIN judged first ON first.id = a.id JOIN judged second ON second.id = b.id AND first.seq < second.seq"
        " WHERE a.direction = 'in' AND b.direction = 'in' AND a.verdict <> 'rejected' AND b.verdict <> 'duplicate'"
    ).fetchone()
    assert row is None, f"{house.name} has judged the message {row[0]} before, and now it is {row[1]}"


def _refused_for_nothing(town: Town, house: House) -> None:
    """What one daemon wrote no other refuses as another message under the same id, or as one it cannot read."""
    rows = house.store.db.execute(
        "SELECT message_id, sender, json_extract(reason, '$.rule') FROM v_messages WHERE verdict = 'rejected'"
    ).fetchall()
    wrong = [row for row in rows if row[1] in town.houses and row[2] not in _FAIR]
    assert not wrong, f"{house.name} refuses {wrong[0][0]} of {wrong[0][1]}: {wrong[0][2]}"


def _begun_once(house: House) -> None:
    """Work that was given out once is one task here, and an attempt ends once."""
    row = house.store.db.execute(
        "SELECT sender, json_extract(origin, '$.attempt_id') FROM v_tasks WHERE parent IS NULL"
        " AND json_extract(origin, '$.attempt_id') IS NOT NULL GROUP BY 1, 2 HAVING count(*) > 1"
    ).fetchone()
    assert row is None, f"{house.name} has two tasks for one attempt of {row[0]}: {row[1]}"
    ended = Counter(
        json.loads(data)["attempt"]
        for (data,) in house.store.db.execute("SELECT data FROM v_events WHERE kind = 'attempt.ended'")
    )
    twice = [attempt for attempt, count in ended.items() if count > 1]
    assert not twice, f"{house.name}: the attempt {twice[0]} has ended twice"


def asked_as_recorded(house: House) -> None:
    """Each call that was ever made has the digest of the very bytes that its agent got, from before it was made."""
    rows = house.store.db.execute("SELECT id, prompt FROM v_outbox WHERE kind = 'run_turn'")
    recorded = {name: json.loads(prompt or "null") for name, prompt in rows}
    texts = dict(house.store.db.execute("SELECT sha256, text FROM v_prompts").fetchall())
    for process in house.processes.all:
        if process.house != house.name or process.id not in recorded:
            continue
        said, found = recorded[process.id], hashlib.sha256(process.prompt).hexdigest()
        assert said is not None, f"{house.name}: nothing says what {process.id} was asked"
        assert (said["sha256"], said["size"]) == (found, len(process.prompt)), f"{house.name}: {process.id}"
        if said.get("text") == "kept":
            assert texts[found] == process.prompt


def ends_as_asked(house: House) -> None:
    """The end of each turn says in the log what the turn was asked; one that is looked up has it in that order."""
    sql = (
        "SELECT json_extract(data, '$.turn.prompt.sha256') FROM v_events WHERE kind IN ('turn.ended', 'attempt.ended')"
    )
    ended = {row[0] for row in house.store.db.execute(sql)}
    sql = "SELECT json_extract(data, '$.prompt.sha256') FROM v_outbox WHERE kind = 'look_up' AND state = 'pending'"
    ended |= {row[0] for row in house.store.db.execute(sql)}
    for process in house.processes.all:
        is_over = process.exit is not None and process.house == house.name
        # the call of a message has a number behind its order's id
        if is_over and process.is_turn and process.id.startswith("trn_") and "." not in process.id:
            found = hashlib.sha256(process.prompt).hexdigest()
            assert found in ended, f"{house.name}: no event says what {process.id} was asked"


def _written_once(house: House) -> None:
    """A message of ours is made once, whatever happened while it was written (7.2)."""
    names = [path.name for path in house.ws.outbox.glob("*/*") if not path.name.startswith(".")]
    written = Counter(name.removesuffix(".md").rpartition(".")[2] for name in names)
    twice = [message for message, count in written.items() if count > 1]
    assert not twice, f"{house.name} has written {twice[0]} twice: {sorted(names)}"


def _sent_is_there(house: House) -> None:
    """What is on record as sent lies in outbox/ with the bytes on record."""
    rows = house.store.db.execute("SELECT path, sha256 FROM v_messages WHERE direction = 'out'").fetchall()
    for path, sha256 in rows:
        found = hashlib.sha256((house.ws.mailbox / path).read_bytes()).hexdigest()
        assert found == sha256, f"{house.name}: {path} is not what was sent"


def _cancels_are_of_what_has_ended(house: House) -> None:
    """A cancel names an attempt of ours that is over."""
    for path in house.ws.outbox.glob("*/*.cancel.*"):
        found = house.store.db.execute("SELECT status FROM v_attempts WHERE id = ?", (attempt_of(path.read_bytes()),))
        assert found.fetchone()[0] != "running", f"{house.name} cancels what goes on: {path.name}"


def _every_end_is_told(house: House) -> None:
    """Who gave work out has a reply about the end that it has come to, in the name of the attempt he gave out last."""
    rows = house.store.db.execute(
        "SELECT id, local_id, phase, json_extract(origin, '$.attempt_id') FROM v_tasks WHERE parent IS NULL"
        " AND phase IN ('completed', 'failed', 'cancelled') AND NOT cancelled_with_parent"
    ).fetchall()
    for task, local_id, phase, attempt in rows:
        paths = house.store.db.execute(
            "SELECT path FROM v_messages WHERE task = ? AND direction = 'out' AND type = 'reply' ORDER BY id", (task,)
        ).fetchall()
        assert paths, f"{house.name} has told nobody that {local_id} is {phase}"
        last = (house.ws.mailbox / paths[-1][0]).read_bytes()
        status = b"\nstatus: done\n" if phase == "completed" else b"\nstatus: failed\n"
        assert status in last, f"{house.name}: {local_id} is {phase}, and its sender was told something else"
        assert attempt_of(last) == (attempt or ""), f"{house.name}: the reply about {local_id} names another attempt"


def _nothing_vanished(house: House) -> None:
    """Every file that was ever dropped is in exactly one place, with its bytes (7.1)."""
    inbox = sum(1 for path in house.ws.inbox.iterdir() if not path.name.startswith("."))
    filed = len(house.mail())
    dropped = sum(house.dropped.values())
    # between its two steps a move by link has both names; a crash may leave that to the next daemon
    assert inbox + filed >= dropped, f"{house.name}: {dropped} files came, {inbox} lie in the inbox, {filed} elsewhere"


# -------------------------------------------------------------- between houses


def _what_was_sent_was_judged(town: Town) -> None:
    """A message that its sender was told has arrived was judged by its receiver."""
    for receiver, name in town.trusted:
        store = town.houses[receiver].store
        known = store.db.execute(
            "SELECT 1 FROM v_messages WHERE direction = 'in' AND message_id = ?", (name,)
        ).fetchone()
        assert known, f"{receiver} has never judged {name}, and its sender was told that it arrived"


def _both_sides_agree(town: Town) -> None:
    """What one house completed for an attempt is what the other took for it, or the other says why not."""
    for house in town.houses.values():
        rows = house.store.db.execute(
            "SELECT sender, json_extract(origin, '$.attempt_id'), result, local_id FROM v_tasks"
            " WHERE parent IS NULL AND phase = 'completed'"
        ).fetchall()
        for sender, attempt, result, local_id in rows:
            giver = town.houses.get(sender)
            if giver is None or attempt is None:
                continue
            found = giver.store.db.execute(
                "SELECT a.status, t.phase, t.result, a.ordinal = t.attempt, t.local_id, t.reason FROM v_attempts a"
                " JOIN v_tasks t ON t.id = a.task WHERE a.id = ?",
                (attempt,),
            ).fetchone()
            assert found is not None, f"{house.name} works on {local_id}, which {sender} never gave out"
            status, phase, taken, latest, name, reason = found
            if status == "succeeded" and latest:
                assert taken.strip() == result.strip(), f"{sender} has for {name}: {taken!r}, {house.name}: {result!r}"
            else:
                explained = status in ("failed", "unknown", "aborted") or phase in ("cancelled", "failed") or not latest
                assert explained, f"{house.name} completed {name}, and for {sender} it is {status}, {phase}: {reason}"


def _results_are_what_was_made(town: Town, house: House) -> None:
    """No result was invented, forged or mixed up: each was made in a turn, for somebody in the tree below it."""
    for name, result in house.store.db.execute("SELECT local_id, result FROM v_tasks WHERE phase = 'completed'"):
        for found in _WORK.finditer(result):
            assert town.worked[found[0]], f"{house.name} has for {name} what nobody made: {found[0]}"


def counts(town: Town) -> Counter[str]:
    """What this history reached, for the test that some history reaches everything."""
    found = Counter(town.reached)
    for house in town.houses.values():
        rows = house.store.db.execute(
            "SELECT type || ' ' || verdict, count(*) FROM v_messages"
            " WHERE direction = 'in' AND type IS NOT NULL GROUP BY 1"
        )
        found.update(dict(rows.fetchall()))
        found["crash"] += sum(house.crashes.values())
    found["letters of an attempt"] = sum(1 for letter in town.carried if attempt_of(letter.raw))
    return found
