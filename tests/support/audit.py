"""Histories as the domain makes them, as the audit reads them, and their corruptions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec.structs import replace

from processor.domain.model import Emit
from relay.audit.book import Book, Fact
from relay.audit.rules import Violation, look
from schemas.records import EventType, OutcomeKind
from tests.support.recipient import Player, ladder

PUSH = ladder(("push", 0))


def facts(player: Player) -> list[Fact]:
    """All events that a player's history emitted, in their places."""
    emitted = [c for c in player.commands if isinstance(c, Emit)]
    return [Fact(c.event_id, c.type, c.event, offset) for offset, c in enumerate(emitted)]


def renumbered(history: Iterable[Fact]) -> list[Fact]:
    """A history with its places counted anew."""
    return [Fact(f.event_id, f.type, f.event, offset) for offset, f in enumerate(history)]


def changed(fact: Fact, event_id: str | None = None, **fields: Any) -> Fact:
    """An event that says something else."""
    return Fact(event_id or fact.event_id, fact.type, replace(fact.event, **fields), fact.offset)


def at(history: list[Fact], kind: EventType, number: int = 0) -> int:
    """The index of the `number`-th event of a type."""
    return [i for i, f in enumerate(history) if f.type is kind][number]


def audited(history: Iterable[Fact], *, whole: bool = True) -> tuple[list[Violation], Book]:
    """What the rules about single events find in a history, and the book after it."""
    book = Book(whole=whole)
    return [violation for fact in history for violation in look(book, fact)], book


def story(player: Player) -> Player:
    """One person, three notifications: one climbs, is retried and resolved with a call in flight; one is sent to its
    end; one stays open."""
    player.put()
    player.notify("k1")
    player.answer(player.deliveries[-1], OutcomeKind.FAILED, reason="http_503")
    player.wait(0.1)
    player.answer(player.deliveries[-1], OutcomeKind.REJECTED, reason="http_404", contact_alive=True)
    flying = player.deliveries[-1]
    player.resolve("k1")
    player.answer(flying, OutcomeKind.SENT)
    player.notify("k2", PUSH)
    player.answer(player.deliveries[-1], OutcomeKind.SENT)
    player.notify("k2", PUSH)
    player.notify("k2", PUSH, data={"n": 2})
    player.notify("k3")
    player.answer(player.deliveries[-1], OutcomeKind.SENT)
    return player
