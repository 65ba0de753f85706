"""What a day's turns may cost: the caps of an agent and of the host, and whether another turn may begin.

Dollars and tokens count as they are reported; a turn that reports neither counts as a turn. A turn that may begin has
its cost reserved until it ends, as the median of its agent's latest turns: parallel ones do not exceed a cap together.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Self, TypedDict

WARNS = 0.8
"""The share of a cap at which people are told."""
LATEST = 15
"""Turns of an agent that its estimate is made of."""
_MICRO = 1_000_000
MEASURES = ("usd", "tokens", "turns")


@dataclass(frozen=True, slots=True)
class Spend:
    """An amount of each measure. `usd` is in millionths of a dollar, so that sums are exact; `turns` are those of which
    neither cost nor tokens are known. As a cap, 0 means none.
    """

    usd: int = 0
    tokens: int = 0
    turns: int = 0

    @classmethod
    def of(cls, usage: Mapping[str, Any], *, ran: bool) -> Self:
        """What a turn with this usage counts, as events have it; one that never reached its agent counts only what it
        reports."""
        used = (usage.get("input_tokens") or 0) + (usage.get("output_tokens") or 0)
        usd = micro(usage.get("cost_usd") or 0.0)
        return cls(usd, used, int(ran and not usd and not used))

    @classmethod
    def of_turn(cls, turn: Mapping[str, Any]) -> Self:
        """What the turn in an event counts. One that only delivered work to a peer's mailbox is none of a model; events
        of earlier versions do not say so, and count as they did."""
        return cls.of(turn["usage"], ran=bool(turn["ran"]) and not turn.get("delivered"))

    @classmethod
    def of_dollars(cls, usd: float, tokens: int, turns: int) -> Self:
        return cls(micro(usd), tokens, turns)

    @classmethod
    def read(cls, stored: object) -> Self:
        """As `asdict` stores it; what is missing or no whole number counts as 0."""
        given = stored if isinstance(stored, Mapping) else {}
        values = {name: given.get(name) for name in MEASURES}
        return cls(**{name: value for name, value in values.items() if type(value) is int and value >= 0})

    def __add__(self, other: Spend) -> Spend:
        return Spend(self.usd + other.usd, self.tokens + other.tokens, self.turns + other.turns)

    def raised(self, to: Spend) -> Spend:
        """This cap, where `to` is higher that; none stays none."""
        return Spend(*(self.amount(name) and max(self.amount(name), to.amount(name)) for name in MEASURES))

    def amount(self, measure: str) -> int:
        return int(getattr(self, measure))

    def __bool__(self) -> bool:
        return bool(self.usd or self.tokens or self.turns)


NOTHING = Spend()
UNKNOWN = Spend(1_000_000, 1_000_000, 1)
"""The estimate where no turn of any agent has ended yet: of a smaller cap the first one uses all, and runs alone."""


def micro(usd: float) -> int:
    """Dollars in millionths, rounded as the migration of older databases does it."""
    return int(usd * _MICRO + 0.5)


def quarter(at: str) -> str:
    """The quarter of an hour (UTC) in which a time lies, `2026-11-21T02:15`."""
    return f"{at[:14]}{int(at[14:16]) // 15 * 15:02}"


def total(parts: Iterable[Spend]) -> Spend:
    return sum(parts, NOTHING)


def estimate(latest: Sequence[Spend], others: Sequence[Spend] = ()) -> Spend:
    """The median of the latest turns of an agent in each measure; of an even number the upper one.

    Of an agent without any it is the highest of the estimates of `others`.
    """
    if latest:
        middle = len(latest) // 2
        return Spend(
            sorted([one.usd for one in latest])[middle],
            sorted([one.tokens for one in latest])[middle],
            sorted([one.turns for one in latest])[middle],
        )
    if others:
        return Spend(*(max(one.amount(name) for one in others) for name in MEASURES))
    return UNKNOWN


@dataclass(frozen=True, slots=True)
class Account:
    """One cap of today: whose, how much, and what is spent and reserved of it."""

    whose: str
    """The agent; empty for all agents of this host."""
    caps: Spend
    spent: Spend
    reserved: Spend = NOTHING
    holds: bool = True
    """Whether a person has confirmed the cap: else reaching it is only told."""

    @property
    def fullest(self) -> str:
        """The measure of which the largest share of the cap is spent; of none, dollars or what else is capped."""
        capped = [name for name in MEASURES if self.caps.amount(name)]
        return max(capped, key=lambda name: self.spent.amount(name) / self.caps.amount(name), default="")

    @property
    def share(self) -> float:
        """How much of the cap is spent, 1.0 = all of it; 0.0 without a cap."""
        name = self.fullest
        return self.spent.amount(name) / self.caps.amount(name) if name else 0.0

    @property
    def is_reached(self) -> bool:
        return self.share >= 1.0

    @property
    def warns(self) -> bool:
        return self.share >= WARNS

    def has_room(self, cost: Spend) -> bool:
        """Whether a turn that is estimated to cost this may begin beside those that run.

        While nothing else runs it may, until the cap is reached: else one that costs more than is left never would.
        """
        if not self.holds:
            return True
        for name in MEASURES:
            cap, spent, reserved = (part.amount(name) for part in (self.caps, self.spent, self.reserved))
            if cap and (spent >= cap or (self.reserved and spent + reserved + cost.amount(name) > cap)):
                return False
        return True

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def read(cls, stored: Mapping[str, Any]) -> Self:
        caps, spent, reserved = (Spend.read(stored.get(name)) for name in ("caps", "spent", "reserved"))
        return cls(str(stored.get("whose", "")), caps, spent, reserved, bool(stored.get("holds")))


@dataclass(frozen=True, slots=True)
class Standing:
    """The caps of one agent and its host on one day, which ends at `until` (UTC, as in `core.times`)."""

    day: str
    until: str
    agent: Account
    host: Account

    @property
    def accounts(self) -> tuple[Account, Account]:
        return self.agent, self.host

    @property
    def reached(self) -> Account | None:
        """The cap that keeps new turns from beginning until the day ends or a person raises it."""
        return next((one for one in self.accounts if one.holds and one.is_reached), None)

    def of_new_day(self) -> Standing:
        """The same caps, of which nothing is spent; those raised for a day only are not known any more here."""
        agent, host = (replace(one, spent=NOTHING, reserved=NOTHING) for one in self.accounts)
        return replace(self, agent=agent, host=host)

    def as_json(self) -> dict[str, Any]:
        return {"day": self.day, "until": self.until, "agent": self.agent.as_json(), "host": self.host.as_json()}

    @classmethod
    def read(cls, stored: Mapping[str, Any]) -> Self:
        agent, host = (Account.read(stored.get(name, {})) for name in ("agent", "host"))
        return cls(str(stored.get("day", "")), str(stored.get("until", "")), agent, host)


# In words


def said(measure: str, amount: int) -> str:
    """An amount without its unit: `3.10`, `20`, `12,000`."""
    if measure != "usd":
        return f"{amount:,}"
    usd = amount / _MICRO
    if amount % _MICRO == 0:
        return f"{usd:.0f}"
    return f"{usd:.2f}" if amount >= 10_000 else f"{usd:.6f}".rstrip("0")


def unit(measure: str) -> str:
    return {"usd": "USD", "tokens": "tokens", "turns": "turns without a known cost"}[measure]


def shown_measure(account: Account) -> str:
    """Dollars if any are known, and from 80 % on the measure that is nearest to its cap; empty without a cap."""
    known = (name for name in MEASURES if account.spent.amount(name) and account.caps.amount(name))
    return account.fullest if account.warns else next(known, account.fullest)


def of_cap(account: Account, measure: str = "") -> str:
    """`3.10 of 20 USD today`, and what else is spent: `, and 2 turns without a known cost`.

    By default in the `shown_measure`.
    """
    name = measure or shown_measure(account)
    if not name:
        spent = [name for name in MEASURES if account.spent.amount(name)]
        used = [f"{amount_said(name, account.spent.amount(name))} {unit(name)}" for name in spent]
        return f"{', '.join(used) or '0 USD'} today, without a cap"
    text = f"{amount_said(name, account.spent.amount(name), account.caps.amount(name))} of"
    text = f"{text} {said(name, account.caps.amount(name))} {unit(name)} today"
    turns = account.spent.turns if name != "turns" and not measure else 0
    return f"{text}, and {uncosted(turns)}" if turns else text


def uncosted(turns: int) -> str:
    """`2 turns without a known cost`."""
    return f"{turns:,} turn{'s' * (turns != 1)} without a known cost"


_CENT = 10_000


def amount_said(measure: str, amount: int, cap: int = _CENT) -> str:
    """What is spent: as `said`, but less than a cent is no exact figure, where the cap is larger."""
    return "under 0.01" if measure == "usd" and 0 < amount < _CENT <= cap else said(measure, amount)


_BAR = 20


def bar(account: Account) -> str:
    """`####................`: the share of the cap that is spent."""
    full = min(int(account.share * _BAR), _BAR)
    return "#" * full + "." * (_BAR - full)


def doubled(account: Account) -> str:
    """The options that raise the cap to twice what it is, or what is spent, in each measure that is used up to 80 %."""
    options = []
    for name in MEASURES:
        cap, spent = account.caps.amount(name), account.spent.amount(name)
        if cap and spent >= WARNS * cap:
            most = 2 * max(cap, spent)
            options.append(f"--{name} {-(-most // 10_000) / 100:g}" if name == "usd" else f"--{name} {most}")
    return " ".join(options)


def raising(account: Account) -> str:
    """The command that raises the cap for today; without `--today` it does so for good."""
    return f"mailboxd caps {'' if account.whose else '--host '}{doubled(account)} --today"


def sentence(account: Account) -> str:
    """What is spent of the cap, and what follows from it."""
    whose = f"{account.whose} has" if account.whose else "all agents of this machine together have"
    used = f"{whose} spent {of_cap(account)}"
    if not account.holds:
        return f"{used}; the cap is not enforced until you run `mailboxd caps --confirm`"
    if account.is_reached:
        return f"{used}: no new turn begins before the day ends"
    return f"{used} ({account.share:.0%}); at the cap no new turn begins"


class Amounts(TypedDict):
    """A `Spend` as JSON, in dollars, tokens and turns."""

    usd: float
    tokens: int
    turns: int


class CapDetails(TypedDict):
    """A cap of the day as JSON; a measure of which it is 0 has none."""

    whose: str | None
    """Its agent; None: it is that of all agents of the machine."""
    day: str
    until: str
    """When the day ends."""
    caps: Amounts
    spent: Amounts
    reserved: Amounts
    """What turns that run may still cost."""
    share: float
    """How much of the cap is spent; 1.0 is all."""
    holds: bool
    """It is enforced."""
    reached: bool
    bar: str
    text: str


def spend_json(spend: Spend) -> Amounts:
    return {"usd": spend.usd / _MICRO, "tokens": spend.tokens, "turns": spend.turns}


def caps_json(account: Account, standing: Standing) -> CapDetails:
    """One cap for people and scripts."""
    whose = account.whose or "all agents of this machine"
    return {
        "whose": account.whose or None,
        "day": standing.day,
        "until": standing.until,
        "caps": spend_json(account.caps),
        "spent": spend_json(account.spent),
        "reserved": spend_json(account.reserved),
        "share": round(account.share, 4),
        "holds": account.holds,
        "reached": account.is_reached,
        "bar": bar(account),
        "text": f"{whose}: {of_cap(account)}",
    }


def standing_json(standing: Standing, program: str) -> list[CapDetails]:
    """Both caps as `caps_json`, the last text with what makes them hold; `program` is how a command begins."""
    found = [caps_json(account, standing) for account in standing.accounts]
    loose = [one for one in found if not one["holds"]]
    if loose:
        which = "neither cap is enforced" if len(loose) == len(found) else "not enforced"
        loose[-1]["text"] += f"; {which} until you run `{program} caps --confirm`"
    return found


def of_caps(caps: Spend) -> str:
    """`20 USD, 20,000,000 tokens or 1,000 turns without a known cost`."""
    parts = [f"{said(name, caps.amount(name))} {unit(name)}" for name in MEASURES if caps.amount(name)]
    return ", ".join(parts[:-1]) + (" or " if len(parts) > 1 else "") + (parts[-1] if parts else "any amount")
