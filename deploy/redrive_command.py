"""`rung redrive` as it is typed; what it does is in `redriving`, whose libraries other commands need not load."""

from __future__ import annotations

from typing import Annotated

import typer

from relay.redrive.config import LIMIT, RATE


def redrive(
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Count what would go back, by reason, and write nothing.")
    ] = False,
    reason: Annotated[list[str] | None, typer.Option(metavar="REASON", help="Only this reason; repeatable.")] = None,
    topic: Annotated[list[str] | None, typer.Option(metavar="TOPIC", help="Only from this topic; repeatable.")] = None,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="RFC 3339 time: only what was set aside from then on.")
    ] = None,
    recipient: Annotated[str | None, typer.Option(metavar="RECIPIENT", help="Only this recipient's.")] = None,
    rate: Annotated[float, typer.Option(min=0.1, metavar="NUMBER", help="Records a second.")] = RATE,
    limit: Annotated[int, typer.Option(min=1, metavar="NUMBER", help="How often one record may go back.")] = LIMIT,
    outbox: Annotated[bool, typer.Option("--outbox", help="Put rows of rung.outbox_dead back too.")] = False,
) -> None:
    """Put dead letters back where they came from, as far as nobody has acted meanwhile."""
    from deploy.redriving import redrive as run

    code = run(
        dry_run=dry_run,
        reasons=reason or (),
        topics=topic or (),
        since=since,
        recipient=recipient,
        rate=rate,
        limit=limit,
        outbox=outbox,
    )
    raise typer.Exit(code)
