"""The commands for people: ask for a notification, resolve it, and see what became of it."""

from __future__ import annotations

import json as jsonlib
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

import msgspec
import psycopg
import typer

from deploy import running
from deploy.errors import CommandError
from deploy.settings import load

if TYPE_CHECKING:
    from relay.journal.explain import Explanation

recipient = typer.Typer(help="A recipient's profile.", no_args_is_help=True)
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Who = Annotated[str, typer.Argument(metavar="RECIPIENT", help="The recipient's id.")]
Key = Annotated[str, typer.Argument(metavar="DEDUP_KEY", help="The key of what the person is told about.")]


RECORDED = "recorded"
"""Said where there is nothing else to say: the request is committed, and not yet carried out."""


class AskError(CommandError, RuntimeError):
    """A person's command cannot be carried out; the message says why and what to do."""


def notify(
    who: Who,
    kind: Annotated[str, typer.Argument(metavar="KIND", help="A kind of ladders.toml.")],
    dedup_key: Key,
    data: Annotated[str, typer.Option(metavar="JSON", help="What the templates may use, an object.")] = "{}",
    expires_at: Annotated[
        str | None, typer.Option(metavar="TIME", help="RFC 3339 time after which it is worthless.")
    ] = None,
) -> None:
    """Ask that a recipient be told something, once; prints the notification's id."""
    expiry = _moment(expires_at)
    if expiry is not None and expiry <= datetime.now(UTC):
        print("rung: --expires-at is in the past: it is taken, and nothing will be sent", file=sys.stderr)
    row = _call(
        "SELECT rung.notify(%s, %s, %s::jsonb, %s, %s)",
        (who, kind, _json_object(data, "--data"), dedup_key, expiry),
    )
    print(row)


def resolve(
    who: Who,
    dedup_key: Key,
    resolution: Annotated[str, typer.Argument(metavar="RESOLUTION", help="What the person did, such as `paid`.")],
) -> None:
    """Say that the person acted: whatever is pending stops."""
    _call("SELECT rung.resolve(%s, %s, %s)", (who, dedup_key, resolution))
    print(RECORDED)


@recipient.command("put")
def put_recipient(
    who: Who, profile: Annotated[str, typer.Argument(metavar="PROFILE", help="A JSON object, or @FILE.")]
) -> None:
    """Replace a recipient's profile."""
    text = _file(profile[1:]) if profile.startswith("@") else profile
    _call("SELECT rung.put_recipient(%s, %s::jsonb)", (who, _json_object(text, "the profile")))
    print(RECORDED)


@recipient.command("erase")
def erase_recipient(who: Who) -> None:
    """Forget a recipient: everything pending stops, and every personal field goes."""
    _call("SELECT rung.erase_recipient(%s)", (who,))
    print(RECORDED)


Id = Annotated[str, typer.Argument(metavar="ID", help="A notification's id, or a recipient's (then give the key too).")]
MaybeKey = Annotated[str | None, typer.Argument(metavar="[DEDUP_KEY]", help="With a recipient: the key.")]


def status(identity: Id, dedup_key: MaybeKey = None, json: Json = False) -> None:
    """Say where a notification stands."""
    from relay.journal.explain import head

    found = _explanation(identity, dedup_key)
    if json:
        print(msgspec.json.encode(found.status).decode())
    else:
        print("\n".join([*head(found.status, found.summary), *found.steps, f"next: {found.next}"]))


def explain(identity: Id, dedup_key: MaybeKey = None, json: Json = False) -> None:
    """Say in plain words what happened to a notification, step by step, and why."""
    from rich.console import Console

    from relay.journal.render import render

    found = _explanation(identity, dedup_key)
    if json:
        print(msgspec.json.encode(found).decode())
    else:
        render(found, Console(markup=False))


COMMANDS = (notify, resolve, status, explain)


def _notification_id(database: str, identity: str, dedup_key: str | None) -> UUID:
    """The id that was given, or the one of the notification that the journal knows by recipient and key."""
    if dedup_key is not None:
        from relay.journal import query
        from schemas.ids import notification_id

        return query.find(database, identity, dedup_key) or notification_id(identity, dedup_key)
    try:
        return UUID(identity)
    except ValueError:
        raise AskError(
            f"{identity!r} is no notification id; give the id that `rung notify` printed, or RECIPIENT DEDUP_KEY"
        ) from None


def _explanation(identity: str, dedup_key: str | None) -> Explanation:
    from relay.journal import query

    database = _database()
    try:
        about = _notification_id(database, identity, dedup_key)
        found = query.explain(database, about, None if dedup_key is None else identity)
    except psycopg.OperationalError as error:
        raise AskError(f"the database cannot be reached: {str(error).splitlines()[0]}") from None
    if found is not None:
        return found
    raise AskError(
        f"the journal knows no notification {_named(identity, dedup_key)}: it was not accepted yet "
        "(look again in a moment), its transaction was rolled back, or its retention has ended"
    )


def _named(identity: str, dedup_key: str | None) -> str:
    return identity if dedup_key is None else f"of recipient {identity!r} with dedup key {dedup_key!r}"


def _file(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise AskError(f"{path} is not UTF-8") from None
    except OSError as error:
        raise AskError(f"{path} cannot be read: {error.strerror or error}") from None


def _database() -> str:
    """The database of the environment, else that of the system that `rung up` runs."""
    settings = load()
    if settings.database_url.get_secret_value():
        return settings.database
    found = running.find()
    if found is None:
        raise AskError("no system found: start one with `rung up`, or set RUNG_DATABASE_URL")
    return found.database_url


def _call(query: str, values: tuple[Any, ...]) -> Any:
    try:
        with psycopg.connect(_database(), connect_timeout=10) as connection:
            row = connection.execute(query, values).fetchone()
    except psycopg.OperationalError as error:
        raise AskError(f"the database cannot be reached: {str(error).splitlines()[0]}") from None
    except psycopg.Error as error:
        hint = error.diag.message_hint
        raise AskError((error.diag.message_primary or str(error)) + (f" ({hint})" if hint else "")) from None
    return row[0] if row else None


def _json_object(text: str, where: str) -> str:
    try:
        value = jsonlib.loads(text)
    except ValueError as error:
        raise AskError(f"{where} is no JSON: {error}") from None
    if not isinstance(value, dict):
        raise AskError(f'{where} must be a JSON object, such as {{"amount": "12 EUR"}}')
    return text


def _moment(text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise AskError(f"--expires-at {text!r} is no RFC 3339 time, such as 2027-01-31T18:00:00+01:00") from None
    if moment.tzinfo is None:
        raise AskError(f"--expires-at {text!r} has no UTC offset; add Z or +01:00")
    return moment
