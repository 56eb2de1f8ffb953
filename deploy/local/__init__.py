"""The embedded stack: PostgreSQL and Apache Kafka from wheels and jars alone, as child processes of this one.

It is for the demo, for development and for tests. Everything listens on 127.0.0.1 without a password and keeps its
state in one folder; a production deployment brings its own Kafka and PostgreSQL.
"""
