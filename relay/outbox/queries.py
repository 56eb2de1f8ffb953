"""The relay's SQL, by name. Each is one statement and so one snapshot."""

SESSION = """
-- The read must use its index whatever the statistics say about a table that grows by the second, and planning it
-- anew for each read would cost more than running it.
SET enable_seqscan = off;
SET plan_cache_mode = force_generic_plan;
SET default_transaction_isolation = 'read committed';
SET jit = off;
SET statement_timeout = '60s';
SET idle_in_transaction_session_timeout = '10s';
"""

# The next rows of each group, found by the transactions that its position does not show. The cost is that of the rows
# found, and of no others; but a page costs as much as all that is found, so the pages of a long read come from WALK.
READ = """
WITH groups AS MATERIALIZED (
    SELECT g.no, g.buckets::smallint[] AS buckets, g.until, g.after,
           pg_snapshot_xmax(g.seen) AS next_xid,
           ARRAY(SELECT x.xid FROM pg_snapshot_xip(g.seen) AS x(xid)) AS late
    FROM unnest(%(numbers)s::integer[], %(buckets)s::text[], %(seen)s::text[]::pg_snapshot[],
                %(until)s::text[]::pg_snapshot[], %(after)s::bigint[]) AS g(no, buckets, seen, until, after)
), page AS MATERIALIZED (
    SELECT g.no, r.seq, r.id, r.aggregatetype, r.aggregateid, r.type, r.bucket, r.created_at,
           r.payload::text AS body
    FROM groups g CROSS JOIN LATERAL (
        SELECT o.*
        FROM (
            SELECT n.* FROM rung.outbox n WHERE n.xid >= g.next_xid AND n.bucket = ANY (g.buckets)
            UNION ALL
            SELECT n.* FROM rung.outbox n WHERE n.xid = ANY (g.late) AND n.bucket = ANY (g.buckets)
        ) o
        -- "+ 0" keeps the primary key's index out of this: it would walk over everything that was published.
        WHERE o.seq + 0 > g.after AND (g.until IS NULL OR pg_visible_in_snapshot(o.xid, g.until))
        ORDER BY o.seq + 0
        LIMIT %(rows)s
    ) r
), sized AS (
    SELECT p.*, octet_length(p.body) AS size, count(*) OVER (PARTITION BY p.no) AS fetched,
           sum(least(octet_length(p.body), %(max_value)s)) OVER (PARTITION BY p.no ORDER BY p.seq) AS total
    FROM page p
)
SELECT -1, 0::bigint, NULL::text, NULL::text, NULL::text, NULL::text, NULL::smallint, NULL::bigint, NULL::integer,
       pg_current_snapshot()::text, NULL::bigint
UNION ALL
SELECT s.no, s.seq, s.id::text, s.aggregatetype, s.aggregateid, s.type, s.bucket,
       (extract(epoch FROM s.created_at) * 1000)::bigint, s.size,
       CASE WHEN s.size <= %(max_value)s THEN s.body END, s.fetched
FROM sized s
WHERE s.total - least(s.size, %(max_value)s) < %(bytes)s
ORDER BY 1, 2
"""

# The next page of a long read: a stretch of the table in sequence, of which the group's rows are picked. The cost is
# that of the stretch; where it turns out to hold nothing for the group, READ jumps to the next row. Everything runs
# along the primary key's index, and nothing is sorted. Besides the group's rows comes the last one of a whole stretch:
# as of group -1, if it is none of them.
WALK = """
SELECT CASE WHEN t.taken THEN 0 ELSE -1 END, w.seq, w.id::text, w.aggregatetype, w.aggregateid, w.type, w.bucket,
       (extract(epoch FROM w.created_at) * 1000)::bigint, w.size,
       CASE WHEN w.size <= %(max_value)s THEN w.body END, w.place::integer
FROM (
    SELECT m.*, octet_length(m.body) AS size, count(*) OVER stretch AS place,
           sum(CASE WHEN m.meant THEN least(octet_length(m.body), %(max_value)s) ELSE 0 END) OVER stretch AS total
    FROM (
        SELECT n.*, CASE WHEN n.meant THEN n.payload::text END AS body
        FROM (
            SELECT o.*, o.bucket = ANY (%(buckets)s::smallint[])
                        AND NOT pg_visible_in_snapshot(o.xid, %(seen)s::text::pg_snapshot)
                        AND pg_visible_in_snapshot(o.xid, %(until)s::text::pg_snapshot) AS meant
            FROM rung.outbox o WHERE o.seq > %(after)s::bigint ORDER BY o.seq LIMIT %(span)s
        ) n
        OFFSET 0 -- so that a payload is turned into text once
    ) m
    WINDOW stretch AS (ORDER BY m.seq ROWS UNBOUNDED PRECEDING)
) w
CROSS JOIN LATERAL (SELECT w.meant AND w.total - least(w.size, %(max_value)s) < %(bytes)s AS taken) t
WHERE t.taken OR w.place = %(span)s
ORDER BY w.seq
"""

BURY = """
INSERT INTO rung.outbox_dead
    (seq, id, aggregatetype, aggregateid, type, payload, xid, bucket, created_at, reason, detail)
SELECT o.seq, o.id, o.aggregatetype, o.aggregateid, o.type, o.payload, o.xid, o.bucket, o.created_at, d.reason, d.detail
FROM unnest(%(seq)s::bigint[], %(reason)s::text[], %(detail)s::text[]) AS d(seq, reason, detail)
CROSS JOIN LATERAL (SELECT * FROM rung.outbox o WHERE o.seq = d.seq OFFSET 0) o
ON CONFLICT (seq) DO NOTHING
RETURNING seq
"""

SAVE = """
UPDATE rung.outbox_cursor c
SET seen = n.seen, until = n.until, after_seq = n.after, moved_at = clock_timestamp(),
    owner = CASE WHEN %(release)s THEN NULL ELSE c.owner END
FROM unnest(%(bucket)s::smallint[], %(epoch)s::bigint[], %(seen)s::text[]::pg_snapshot[],
            %(until)s::text[]::pg_snapshot[], %(after)s::bigint[]) AS n(bucket, epoch, seen, until, after)
WHERE c.bucket = n.bucket AND c.epoch = n.epoch AND c.owner = %(replica)s
RETURNING c.bucket
"""

HOLDER = """
SELECT a.pid, greatest(extract(epoch FROM clock_timestamp() - a.xact_start), 0)::float8
FROM pg_stat_activity a
WHERE a.backend_xid = %(xid)s::text::xid8::xid AND a.xact_start IS NOT NULL
"""

JOIN = """
INSERT INTO rung.outbox_replica (id, name, expires_at)
VALUES (%(replica)s, %(name)s, clock_timestamp() + make_interval(secs => %(lease)s))
"""

RENEW = """
UPDATE rung.outbox_replica SET expires_at = clock_timestamp() + make_interval(secs => %(lease)s)
WHERE id = %(replica)s AND expires_at > clock_timestamp()
RETURNING id
"""

LEAVE = "DELETE FROM rung.outbox_replica WHERE id = %(replica)s"

TRY_LOCK = "SELECT pg_try_advisory_xact_lock(8206170491303)"

REAP = """
DELETE FROM rung.outbox_replica
WHERE id IN (SELECT id FROM rung.outbox_replica WHERE expires_at < clock_timestamp() FOR UPDATE SKIP LOCKED)
RETURNING id::text, name
"""

REPLICAS = "SELECT id::text FROM rung.outbox_replica"

OWNED = """
SELECT bucket, epoch, seen::text, until::text, after_seq FROM rung.outbox_cursor
WHERE owner = %(replica)s ORDER BY bucket
"""

CLAIM = """
UPDATE rung.outbox_cursor
SET owner = %(replica)s, epoch = epoch + 1
WHERE bucket IN (
    SELECT c.bucket FROM rung.outbox_cursor c
    WHERE c.owner IS NULL OR NOT EXISTS (SELECT FROM rung.outbox_replica r WHERE r.id = c.owner)
    ORDER BY c.bucket LIMIT %(count)s FOR UPDATE OF c SKIP LOCKED
)
RETURNING bucket, pg_snapshot_xmax(seen) > pg_snapshot_xmax(pg_current_snapshot())
"""
