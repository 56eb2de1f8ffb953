"""The audit: an independent reading of what the system promised, from what it has written down.

It reads the outbox, `delivery-events` and the journal, and never the processor's state or code, so a fault there cannot
hide itself here. `rules.py` says what must hold, one pure function for each rule; `book.py` and `ledger.py` remember
what they need of what was read; `topic.py` and `database.py` read; `rounds.py` goes round; `service.py` does it once,
with a report, or for ever, with counters that must stay 0.

    round:  snapshot of PostgreSQL ──▶ new rows of the outbox, how far the journal is
            delivery-events up to its end ──▶ rules, book ──▶ recount, merge with the journal's rows
            judge what has been waiting too long

A single run goes round until every request that the first round saw is answered or judged. Every round reads what is
new since the one before, in Kafka by offsets and in PostgreSQL by snapshot and offsets.

An alternative was to ask the journal alone, in SQL. It was not taken because the journal is one of the things judged,
and because order is the topic's and not the table's. It would come back if the topic's retention became shorter than
what has to be audited.
"""
