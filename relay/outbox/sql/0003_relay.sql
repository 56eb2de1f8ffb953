-- What the relay remembers: how far each bucket is published, and which replica may publish it.

CREATE TABLE rung.outbox_cursor (
    bucket     smallint    PRIMARY KEY CHECK (bucket BETWEEN 0 AND 63),
    seen       pg_snapshot NOT NULL,
    until      pg_snapshot,
    after_seq  bigint      NOT NULL DEFAULT 0,
    cursor_xid xid8        NOT NULL GENERATED ALWAYS AS (pg_snapshot_xmin(seen)) STORED,
    epoch      bigint      NOT NULL DEFAULT 0,
    owner      uuid,
    moved_at   timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (fillfactor = 40, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
COMMENT ON COLUMN rung.outbox_cursor.seen IS 'Every row of the bucket that this snapshot shows is published.';
COMMENT ON COLUMN rung.outbox_cursor.until IS
    'Set while a long read is under way: of the rows that this snapshot shows besides, those up to after_seq are published.';
COMMENT ON COLUMN rung.outbox_cursor.cursor_xid IS 'Every row of the bucket with a lower xid is published.';
COMMENT ON COLUMN rung.outbox_cursor.epoch IS 'Grows when the owner changes; a write that carries an older one changes nothing.';

INSERT INTO rung.outbox_cursor (bucket, seen)
SELECT b, pg_current_snapshot() FROM generate_series(0, 63) AS b;

CREATE TABLE rung.outbox_replica (
    id         uuid        PRIMARY KEY,
    name       text        NOT NULL,
    started_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    expires_at timestamptz NOT NULL
) WITH (fillfactor = 40, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
COMMENT ON TABLE rung.outbox_replica IS
    'Running relays. A row that has expired is removed by another replica; its owner finds no row to renew and stops.';

GRANT SELECT ON rung.schema_migration TO rung_relay, rung_journal;
GRANT SELECT ON rung.outbox, rung.outbox_seq, rung.kind, rung.outbox_partition TO rung_relay;
GRANT SELECT, UPDATE ON rung.outbox_cursor TO rung_relay;
GRANT SELECT, INSERT, UPDATE, DELETE ON rung.outbox_replica TO rung_relay;
GRANT SELECT, INSERT ON rung.outbox_dead TO rung_relay;
GRANT UPDATE (full_xid) ON rung.outbox_partition TO rung_relay;

-- To name the transaction that holds the cursor, the relay must see other sessions' transactions. Only an administrator
-- of that role can grant this; without it the relay still measures the age, and reports no pid.
DO $$
BEGIN
    GRANT pg_read_all_stats TO rung_relay;
EXCEPTION WHEN insufficient_privilege THEN
    RAISE NOTICE 'rung_relay may not read pg_stat_activity: GRANT pg_read_all_stats TO rung_relay';
END
$$;
