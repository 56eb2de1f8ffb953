"""An explanation for people at a terminal: a timeline in colours. The plain form is `Explanation.lines()`."""

from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from relay.journal.explain import Explanation, clock, day, head

GOOD, BAD, QUIET, BUSY = "green", "red", "dim", "yellow"

STYLES: dict[str, str] = {
    "sent": GOOD,
    "delivered": GOOD,
    "resolved": GOOD,
    "finished": GOOD,
    "rejected": BAD,
    "failed": BUSY,
    "unknown": BUSY,
    "bounced": BAD,
    "dead": BAD,
    "expired": BAD,
    "too late": BUSY,
    "suppressed": QUIET,
    "deferred": QUIET,
    "promoted": BUSY,
}
"""Colours of what happened; anything else is plain."""


def render(explanation: Explanation, console: Console) -> None:
    """Print the story: its standing in a frame, then the timeline, then what is next."""
    console.print(Panel(Text("\n".join((*head(explanation.status, explanation.summary), "", *explanation.steps)))))
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(no_wrap=True, style="cyan")
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    last = ""
    for line in explanation.timeline:
        if day(line.at) != last:
            last = day(line.at)
            table.add_row(Text(last, style="bold"), "", "")
        step = "" if line.step_no is None else f"step {line.step_no} {line.channel}"
        table.add_row(clock(line.at), Text(step), Text(line.text, style=STYLES.get(line.what, "")))
    console.print(table)
    console.print(Text(f"next: {explanation.next}"))
