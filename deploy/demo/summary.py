"""What the demo prints at its end: counts per channel and kind, and the verdict."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from deploy.demo.judge import Kind, Verdict
from relay.journal.totals import KindTotals


def print_summary(console: Console, kinds: Sequence[KindTotals]) -> None:
    """The counts of the journal, one row a kind and one for all."""
    table = Table(title="Summary", title_justify="left", box=None, pad_edge=False)
    names = (
        "kind",
        "accepted",
        "sent",
        "held",
        "failed",
        "suppressed",
        "retried",
        "promoted",
        "dead",
        "0/1/2/3 left",
        "cancelled",
    )
    for name in names:
        table.add_column(name, justify="left" if name == "kind" else "right")
    for one in kinds:
        # Where nobody resolves, zeros would say that everybody acted late.
        depths = "/".join(str(one.depth.get(n, 0)) for n in range(4)) if any(one.depth.values()) else ""
        ratio = f"{one.cancelled / one.concluded:.0%}" if one.concluded else "-"
        table.add_row(
            one.kind,
            str(one.accepted),
            str(sum(one.sent.values())),
            str(one.steps.get("held", 0)),
            str(one.steps.get("failed", 0) + one.steps.get("rejected", 0)),
            str(one.steps.get("suppressed", 0)),
            str(one.retried),
            str(one.promoted),
            str(one.ended.get("dead", 0)),
            depths,
            ratio,
        )
    console.print(table)
    sent: Counter[str] = Counter()
    for one in kinds:
        sent.update(one.sent)
    console.print("sent per channel: " + ", ".join(f"{channel} {number}" for channel, number in sorted(sent.items())))
    duplicates, conflicts = sum(k.duplicates for k in kinds), sum(k.conflicts for k in kinds)
    late = sum(k.resolved_late for k in kinds)
    console.print(f"duplicates dropped {duplicates}, conflicts refused {conflicts}, resolved after the end {late}")
    console.print(
        "0/1/2/3 left: the escalation depth, how many steps had left when the person acted; "
        "cancelled: the share of steps never sent; "
        "held: the server took it and did not say so, and a repeat could be a second message; "
        "failed: refused for good, or no attempt was left",
        style="dim",
    )


def print_verdict(console: Console, verdict: Verdict, kinds: Sequence[KindTotals]) -> None:
    """What the servers received against what the application committed, beside what the journal knows of it."""
    sent, held = sum(sum(k.sent.values()) for k in kinds), sum(k.steps.get("held", 0) for k in kinds)
    unheard = verdict.accepted - sent - held
    console.print()
    console.print("Checked against the SMTP and HTTP servers and the application's tables:")
    console.print(f"  committed notifications            {verdict.committed}")
    console.print(f"  rolled back by the application     {verdict.rolled_back}")
    console.print(
        f"  calls received                     {verdict.calls}, {verdict.accepted} accepted as new "
        f"(the journal: {sent} sent, {held} held" + (f", {unheard} unanswered at the stop)" if unheard > 0 else ")")
    )
    console.print(f"  repeats with the key of before     {verdict.repeats} (after a time-out; the key makes them one)")
    console.print(
        f"  in flight when the person acted    {verdict.in_flight}"
        + (f" (the latest {verdict.slowest_stop_ms} ms after the commit)" if verdict.in_flight else "")
    )
    console.print(f"  the slowest first call of a step   {verdict.slowest_call_ms} ms after its time")
    for kind in Kind:
        number = verdict.found[kind]
        console.print(f"  {kind:<34} {number}", style="red" if number else "green")
    for fault in verdict.faults[:20]:
        console.print(f"  FAULT {fault}", style="red")
    if len(verdict.faults) > 20:
        console.print(f"  … and {len(verdict.faults) - 20} more faults", style="red")
