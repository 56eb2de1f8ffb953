"""Databases for tests on one server."""

from __future__ import annotations

import uuid
from urllib.parse import urlsplit, urlunsplit

import psycopg
from psycopg import sql


def with_database(server: str, name: str) -> str:
    """The address of another database on the same server, by the same user and options."""
    return urlunsplit(urlsplit(server)._replace(path=f"/{name}"))


def create_database(server: str, template: str = "template1") -> str:
    """Create a database with a name of its own and return its address; `server` is a superuser's address."""
    name = f"test_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(server, autocommit=True) as connection:
        # Copying files beats writing a log of the copy, for databases as small as these.
        connection.execute(
            sql.SQL("CREATE DATABASE {} TEMPLATE {} STRATEGY FILE_COPY").format(
                sql.Identifier(name), sql.Identifier(template)
            )
        )
    return with_database(server, name)


def drop_database(server: str, url: str) -> None:
    """Drop a database, ending the connections to it."""
    name = urlsplit(url).path.removeprefix("/")
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))
