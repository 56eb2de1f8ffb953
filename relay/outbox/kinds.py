"""The names of the kinds, published to the database so that `rung.notify` can refuse one that has no ladder."""

from collections.abc import Iterable

import psycopg


def publish_kinds(conninfo: str, kinds: Iterable[str]) -> list[str]:
    """Make `rung.kind` hold exactly these names, and return them sorted.

    A kind that is gone is refused from then on; its notifications that are under way keep their ladder.

    Raises:
        psycopg.Error: the database cannot be reached, or is not migrated.
    """
    names = sorted(set(kinds))
    with psycopg.connect(conninfo) as connection:
        connection.execute("DELETE FROM rung.kind WHERE name <> ALL (%s)", (names,))
        connection.execute(
            "INSERT INTO rung.kind (name) SELECT unnest(%s::text[]) ON CONFLICT (name) DO NOTHING", (names,)
        )
    return names
