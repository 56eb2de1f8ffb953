"""`rung redrive`: which letters, how their readers would read them today, and what the shell is told."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import psycopg
from confluent_kafka import KafkaException
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from deploy import logs, running
from deploy.auditing import since_option
from deploy.configuration import load_configuration
from deploy.people import AskError
from deploy.settings import Settings, load
from deploy.signals import stopped_by_signals
from processor.domain.quiet_hours import validate_profile
from processor.engine import intake
from processor.engine.port import InputRecord
from relay.redrive.config import RedriveConfig
from relay.redrive.judgement import Understood, plainly
from relay.redrive.letters import Letter
from relay.redrive.service import RedriveError, Summary, run
from schemas.codec import Decoded
from schemas.errors import DecodeError
from schemas.reasons import DeadReason
from schemas.records import Notify, PutRecipient, Redrive
from schemas.state import Ladder
from schemas.topics import CATALOGUE, PROCESSOR_INPUTS, Naming, Topic

LEFT = 1
STOPPED = 130


def redrive(
    *,
    dry_run: bool,
    reasons: Sequence[str],
    topics: Sequence[str],
    since: str | None,
    recipient: str | None,
    rate: float,
    limit: int,
    outbox: bool,
) -> int:
    """Carry the command out; the exit code: 0, 1 if some letters stay, 130 if it was told to stop."""
    _check(reasons, topics)
    settings = load()
    kafka, database, naming, folder = _system(settings, outbox=outbox)
    config = RedriveConfig(
        kafka,
        naming,
        dry_run=dry_run,
        reasons=frozenset(reasons),
        topics=frozenset(topics),
        recipient=recipient,
        since=since_option(since),
        rate=rate,
        limit=limit,
        understood=as_today(load_configuration(folder).ladders),
    )
    logs.configure(settings.log_level, "redrive")
    summary = _carried_out(config, database)
    _show(summary)
    if summary.stopped:
        return STOPPED
    return LEFT if summary.refused else 0


def as_today(ladders: Mapping[str, Ladder]) -> Understood:
    """Reads a letter as the services would, with these ladders."""

    def understood(topic: Topic, letter: Letter) -> Decoded:
        decoded = plainly(topic, letter)
        if topic in PROCESSOR_INPUTS:
            raw: list[tuple[str, bytes | None]] = list(letter.original)
            intake.read(InputRecord(topic, letter.partition, 0, 0, letter.key, letter.value, raw), ladders)
        match decoded.record:
            case Notify(kind=kind) | Redrive(kind=kind) if kind not in ladders:
                raise DecodeError(DeadReason.UNKNOWN_KIND, "its kind has no ladder")
            case PutRecipient(profile=profile) if (fault := validate_profile(profile)) is not None:
                raise DecodeError(DeadReason.BAD_PROFILE, fault)
            case _:
                return decoded

    return understood


def _carried_out(config: RedriveConfig, database: str | None) -> Summary:
    from relay.redrive.outbox_dead import added, put_back

    stop = threading.Event()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    try:
        with stopped_by_signals(stop), Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task("reading dead letters", total=None)
            summary = run(config, stop, lambda read, size: bar.update(task, completed=read, total=max(read, size)))
        if database is not None and not summary.stopped:
            summary = added(summary, put_back(config, database, round(time.time() * 1000), stop))
    except RedriveError as error:
        raise AskError(str(error)) from None
    except KafkaException as error:
        raise AskError(f"Kafka cannot be used: {error.args[0].str()}") from None
    except psycopg.Error as error:
        raise AskError(f"the database cannot be used: {str(error).splitlines()[0]}") from None
    return summary


def _show(summary: Summary) -> None:
    verb = "would go back" if summary.dry_run else "went back"
    table = Table("reason", "what becomes of it", "why", "letters")
    for reason, number in sorted(summary.back.items()):
        table.add_row(reason, verb, "", str(number))
    for (reason, why, detail), number in sorted(summary.refused.items()):
        because = f"{why} ({detail})" if detail else why
        table.add_row(reason or "?", "stays", because, str(number))
    # Reasons come from headers, which anybody may have written.
    console = Console(markup=False)
    if table.row_count:
        console.print(table)
    console.print(
        f"{summary.back.total()} {verb}, {summary.refused.total()} stay, {summary.done_before} went back before, "
        f"{summary.left_out} left out by the filters" + (" (stopped)" if summary.stopped else "")
    )
    if summary.dry_run:
        console.print("Nothing was written.")


def _check(reasons: Sequence[str], topics: Sequence[str]) -> None:
    for given, known, what in ((reasons, list(DeadReason), "reason"), (topics, [t.name for t in CATALOGUE], "topic")):
        for name in given:
            if name not in known:
                raise AskError(f"--{what} {name!r} is none; there are: {', '.join(known)}")


def _system(settings: Settings, *, outbox: bool) -> tuple[dict[str, str], str | None, Naming, Path]:
    """The clients' settings, the database if it is asked for, the names of topics, and the configuration directory: of
    the environment, else of the system that `rung up` runs."""
    if settings.kafka:
        return settings.client, settings.database if outbox else None, settings.naming, settings.config_dir
    found = running.find()
    if found is None:
        raise AskError("no system found: start one with `rung up`, or set RUNG_KAFKA")
    kafka = {**settings.kafka_config, "bootstrap.servers": found.kafka}
    return kafka, found.database_url if outbox else None, Naming(found.topic_prefix), Path(found.config_dir)
