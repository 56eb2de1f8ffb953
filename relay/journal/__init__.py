"""The journal: `delivery-events` in PostgreSQL, each event once, and what people read from it.

Written: `rung.delivery_event`, append-only, partitioned by UTC day; retention drops whole days, so there are no dead
rows and nothing to vacuum. Its Kafka offsets stand in `rung.journal_offset` and move in the transaction that writes
the events. What a crash at each point leaves behind:

    before the commit               nothing; the events are read again from the stored offset
    between dead letter and commit  a dead letter that is written again; its headers name the same topic and offset
    during the commit               either all or nothing; the stored offset tells which
    after the commit                everything; reading goes on at the stored offset

A writer that lost a partition without knowing finds another offset than it expects, and its transaction is rolled back.

Read: `query.status` and `query.explain` fold the events of one notification. A summary row per notification, updated
at every event, was the alternative: it makes a lookup one index probe instead of one per day kept, and costs an update
and a dead row per event. It is worth another look when lookups become more frequent than events.
"""
