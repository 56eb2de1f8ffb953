"""The moments of the relay at which a test may end the process: before and after each effect.

The service calls `config.at` with the name; in production that does nothing.
"""

POINTS = (
    "outbox.read.before",
    "outbox.read.after",
    "outbox.publish.before",
    "outbox.publish.after",
    "outbox.acknowledge.before",
    "outbox.acknowledge.after",
    "outbox.cursor.before",
    "outbox.cursor.after",
    "outbox.lease.before",
    "outbox.lease.after",
)
