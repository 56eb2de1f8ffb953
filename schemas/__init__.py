"""The contract: every record on every topic, the state in the changelog, and how both travel.

This package imports nothing else of the project; every other package imports it.

Records are JSON values with CloudEvents 1.0 attributes in Kafka headers (binary content mode), keyed by recipient.
Evolution is full-transitive with an open content model: a new field has a default, a field never changes its type,
and a breaking change is a new type name. `schemas/json/` holds the JSON Schemas generated from these structs, and
`tests/corpus/` one encoded example of every released record, which must decode for ever.

All times are whole milliseconds since the epoch, UTC, in fields that end in `_at` (a moment) or `_ms` (a length).
"""
