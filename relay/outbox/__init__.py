"""The outbox: business transactions write rows through SQL functions, and the relay publishes each row to Kafka.

Decision: rows carry their transaction id, and a cursor is a *snapshot* (`pg_snapshot`), one per bucket of recipients:
every row that it shows is published. A row that becomes visible later was written by a transaction that the snapshot
does not show, so the next read asks for exactly those transactions: ids at or above its xmax, and those it lists as in
progress. Nothing is skipped however late a transaction commits, nothing is read twice, and the cost of a read depends
neither on what was published nor on how long another transaction stays open. `cursor_xid`, the snapshot's xmin, is
what an open transaction holds: it bounds what partitions may be dropped.

Order: within one read rows go out by `seq`, and reads follow each other. `seq` is drawn when the row is written, by
a sequence without a cache, so the rows of one transaction keep the order of its statements, and a row written after
another one was committed comes after it. It is not the order of xids: a transaction that got its id early may write
late. Two transactions that overlap in time have no order that either could rely on.

Rejected: `seq > last` (loses the row that commits late); UPDATE or DELETE of published rows (dead tuples, which an
open transaction keeps from being removed); `cursor_xid` alone (re-reads all since, as long as it is held);
LISTEN/NOTIFY (a lock over all databases at each commit); logical decoding (a slot that keeps WAL without bound when
nobody reads it, and a privilege that many do not get). A team that has Debezium can point its outbox router at the
table instead.
"""
