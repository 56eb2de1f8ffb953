"""`python -m tests.benchmarks [PART ...]`: measure, and print one table."""

from __future__ import annotations

import tempfile
import time
import traceback
from pathlib import Path
from typing import Annotated

import typer

from deploy.local.errors import StackError
from tests.benchmarks.bench import Bench
from tests.benchmarks.harness import Row
from tests.benchmarks.parts import OPTIONAL, PARTS
from tests.benchmarks.report import machine, missed, save, show, warn
from tests.benchmarks.report import markdown as table

KNOWN = {**PARTS, **OPTIONAL}


def main(
    parts: Annotated[
        list[str] | None,
        typer.Argument(metavar="[PART]...", help=f"{', '.join(PARTS)}; only if named: {', '.join(OPTIONAL)}"),
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Turns of baseline and ours; three or more for a claim.")] = 3,
    scale: Annotated[float, typer.Option(min=0.0001, help="Multiplies the size of each part.")] = 1.0,
    json: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the raw numbers there.")] = None,
    markdown: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the table there as Markdown.")] = None,
    check: Annotated[bool, typer.Option("--check", help="Exit 1 if a bound is missed.")] = False,
    keep: Annotated[Path | None, typer.Option(metavar="FOLDER", help="Keep servers' state and logs there.")] = None,
) -> None:
    """Measure each part against its baseline, in turns, on servers started for this run."""
    wanted = parts or list(PARTS)
    if unknown := [name for name in wanted if name not in KNOWN]:
        raise typer.BadParameter(f"no part {', '.join(unknown)}; there are {', '.join(KNOWN)}")
    about = machine() | {"rounds": rounds, "scale": scale}
    rows: list[Row] = []
    broken = []
    with tempfile.TemporaryDirectory(prefix="rung-bench-") as temporary:
        folder = keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        for name in wanted:
            warn(f"{name} …")
            started = time.monotonic()
            try:
                # Servers of its own for each part: what one leaves behind must not cost the next one.
                with Bench(folder / name, rounds=rounds, scale=scale) as bench:
                    rows += KNOWN[name](bench)
            except StackError as error:
                # One sentence that says what to do.
                warn(str(error))
                broken.append(name)
            except Exception:
                # The other parts' figures are worth having.
                traceback.print_exc()
                broken.append(name)
            warn(f"{name}: {time.monotonic() - started:.0f} s")
            if json is not None:
                # After each part: a run that is cut off has measured something.
                save(rows, about, json)
    show(rows, about)
    if markdown is not None:
        markdown.write_text(table(rows, about))
    for name in broken:
        warn(f"{name} could not be measured")
    if broken or (check and missed(rows)):
        raise typer.Exit(1)


typer.run(main)
