"""The moments of the journal at which a test may end the process: before and after each effect.

The service calls `config.at` with the name; in production that does nothing.
"""

POINTS = (
    "journal.transaction.before",
    "journal.transaction.after",
    "journal.commit.before",
    "journal.commit.after",
)
