"""A shop: an app of the size that people have. Checked by mypy, and carried out by tests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import Any, TypedDict

from raftsched.client import (
    GIVEN,
    App,
    Concurrency,
    Context,
    DeferCall,
    Overlap,
    Retry,
    RetryLater,
    Timeouts,
    cron,
    every,
)

app = App(name="shop")
tenant: ContextVar[str] = ContextVar("tenant", default="none")


# What the tasks are about.


@dataclass(frozen=True)
class Reminder:
    customer: str
    subject: str = "Your basket"


@dataclass(frozen=True)
class Charge:
    order: int
    cents: int
    card: str


class Parcel(TypedDict):
    order: int
    address: str


class BadCard(Exception):
    """The bank will never take this card."""


class BankBusy(Exception):
    """The bank may take it later."""


# What the tasks work with.


@dataclass
class Ledger:
    """Stands for a database."""

    entries: list[str] = field(default_factory=list)
    is_open: bool = True

    def write(self, entry: str) -> None:
        assert self.is_open
        self.entries.append(entry)


@dataclass
class Transaction:
    """One in each run."""

    ledger: Ledger
    written: list[str] = field(default_factory=list)

    def write(self, entry: str) -> None:
        self.written.append(entry)


ledgers: list[Ledger] = []
durations: dict[str, float] = {}


@app.provide
async def open_ledger() -> AsyncIterator[Ledger]:
    ledger = Ledger()
    ledgers.append(ledger)
    yield ledger
    ledger.is_open = False


@app.provide(per="run")
def begin(ledger: Ledger, context: Context) -> Iterator[Transaction]:
    transaction = Transaction(ledger)
    yield transaction
    for entry in transaction.written:
        ledger.write(f"{context.job}: {entry}")


@app.on_startup
async def warm() -> None:
    durations.clear()


@app.on_shutdown
def close() -> None:
    durations["closed"] = 0.0


@app.around_run
def timed(context: Context) -> Iterator[None]:
    began = monotonic()
    try:
        yield
    finally:
        durations[context.job] = monotonic() - began


@app.around_defer
def for_tenant(call: DeferCall) -> Iterator[None]:
    for entry in call.entries:
        entry.labels["tenant"] = tenant.get()
    yield


# The tasks.


@app.task(queue="mail")
async def remind(reminder: Reminder, transaction: Transaction = GIVEN) -> str:
    """Remind a customer of something."""
    transaction.write(f"{reminder.subject} to {reminder.customer}")
    return reminder.customer


@app.task(
    retry=Retry(3, first=0.1, fatal=[BadCard]),
    timeouts=Timeouts(attempt=timedelta(seconds=30)),
)
def charge(wanted: Charge, context: Context = GIVEN) -> int:
    """Charge a card; the bank takes it at the second attempt."""
    if wanted.card == "bad":
        raise BadCard(wanted.card)
    if context.attempt == 1:
        raise BankBusy
    return wanted.cents


@app.task(concurrency=Concurrency(key="payload.address", key_limit=1))
async def ship(parcel: Parcel, transaction: Transaction = GIVEN) -> None:
    transaction.write(f"order {parcel['order']} to {parcel['address']}")


@app.task(name="thumbnail", inline=True)
def make_thumbnail(picture: bytes) -> int:
    return len(picture)


@app.task
def count(words: list[str], least: int = 1) -> dict[str, int]:
    found = {word: words.count(word) for word in words}
    return {word: number for word, number in found.items() if number >= least}


@app.task
async def settle(order: int) -> None:
    raise RetryLater(timedelta(minutes=5), f"order {order} is not paid")


# The jobs.


@app.job(
    cron("0 9 * * mon", zone="Europe/Berlin"),
    payload={"to": "anna"},
    retry=Retry(5, cap=timedelta(hours=1)),
    overlap=Overlap("queue_one"),
)
async def report(to: str, *, day: datetime | None = None, ledger: Ledger = GIVEN) -> int:
    """The weekly report."""
    ledger.write(f"report to {to}")
    return len(ledger.entries)


@app.job(cron("0 2 * * *"), every(timedelta(hours=12)), exclude_calendars=[])
async def clean_up(context: Context = GIVEN) -> str:
    return context.scheduled_time.isoformat()


@app.task
def alarmed(failure: dict[str, Any]) -> str:
    return str(failure["job"])


@app.job(after=clean_up, on_failure=alarmed)
def after_cleaning() -> None: ...


async def order_placed(order: int, customer: str, cents: int) -> int:
    """What the web side of the shop does."""
    later = timedelta(days=1)
    await remind.options(in_=later, key=f"remind:{order}").defer(Reminder(customer))
    await ship.options(at=datetime(2030, 1, 1, tzinfo=UTC)).defer(
        {"order": order, "address": "1 Main Street"}
    )
    charged = await charge.options(key=f"charge:{order}", priority="high").defer(
        Charge(order, cents, "good")
    )
    taken = await charged.result(timeout=30)
    return taken + 0


def import_orders(names: list[str]) -> list[str]:
    """What a script of the shop does."""
    runs = remind.defer_many_sync(remind.entry(Reminder(name)) for name in names)
    counted = count.defer_sync(["a", "b", "a"], least=2).result(timeout=30)
    return [run.id for run in runs] + [*counted]
