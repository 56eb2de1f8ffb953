-- The outbox: an append-only table that business transactions write and the relay reads.

CREATE SCHEMA IF NOT EXISTS rung;
COMMENT ON SCHEMA rung IS 'Rung: notifications that climb a ladder of channels until the person acts.';

-- Roles belong to the cluster, so another database of it may have made them already, even at this moment.
DO $$
DECLARE
    wanted text;
BEGIN
    FOREACH wanted IN ARRAY ARRAY['rung_producer', 'rung_relay', 'rung_journal'] LOOP
        IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = wanted) THEN
            BEGIN
                EXECUTE pg_catalog.format('CREATE ROLE %I NOLOGIN', wanted);
            EXCEPTION WHEN duplicate_object OR unique_violation THEN
                NULL;
            END;
        END IF;
    END LOOP;
END
$$;

GRANT USAGE ON SCHEMA rung TO rung_producer, rung_relay, rung_journal;

CREATE TABLE rung.kind (
    name         text PRIMARY KEY,
    published_at timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE rung.kind IS 'The kinds of notification that have a ladder; published by `rung ladders apply`.';

-- CACHE 1: numbers are handed out in the order in which rows are written, over all sessions. The relay publishes in
-- this order what it sees in one snapshot, so a larger cache would break the order of a recipient's records.
CREATE SEQUENCE rung.outbox_seq AS bigint CACHE 1;

CREATE TABLE rung.outbox (
    seq           bigint      NOT NULL DEFAULT nextval('rung.outbox_seq'),
    id            uuid        NOT NULL DEFAULT gen_random_uuid(),
    aggregatetype text        NOT NULL,
    aggregateid   text        NOT NULL,
    type          text        NOT NULL,
    payload       jsonb       NOT NULL,
    xid           xid8        NOT NULL DEFAULT pg_current_xact_id(),
    bucket        smallint    NOT NULL GENERATED ALWAYS AS ((hashtextextended(aggregateid, 0) & 63)::smallint) STORED,
    -- What a record's time can be: neither infinite nor out of the years that its readers know.
    created_at    timestamptz NOT NULL DEFAULT clock_timestamp()
                  CHECK (created_at BETWEEN '1970-01-01 00:00:00+00' AND '9999-01-01 00:00:00+00'),
    PRIMARY KEY (seq)
) PARTITION BY RANGE (seq);
COMMENT ON TABLE rung.outbox IS
    'Append-only: rows are never updated or deleted; whole partitions are dropped once published.';
COMMENT ON COLUMN rung.outbox.aggregatetype IS 'The topic, by its name in the catalogue: notifications or resolutions.';
COMMENT ON COLUMN rung.outbox.aggregateid IS 'The recipient, and the key of the record.';
COMMENT ON COLUMN rung.outbox.type IS 'The CloudEvents type of the record.';
COMMENT ON COLUMN rung.outbox.xid IS 'The transaction that wrote the row; what tells the relay which rows it cannot have seen.';

-- The relay looks for rows of the transactions that its last snapshot did not show, in the buckets that it holds.
CREATE INDEX outbox_unseen ON rung.outbox (xid, bucket, seq);

CREATE TABLE rung.outbox_partition (
    name     text   PRIMARY KEY,
    from_seq bigint NOT NULL UNIQUE,
    to_seq   bigint NOT NULL UNIQUE CHECK (to_seq > from_seq),
    full_xid xid8
);
COMMENT ON TABLE rung.outbox_partition IS 'The partitions of rung.outbox: from_seq is included, to_seq is not.';
COMMENT ON COLUMN rung.outbox_partition.full_xid IS
    'The next transaction id when the partition was first found full: what is older may still have written to it.';

CREATE FUNCTION rung.outbox_add_partitions(ahead bigint, size bigint) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
-- Add partitions of `size` rows until at least `ahead` rows fit beyond the last number given out; returns how many.
-- A table is made first and attached then: CREATE TABLE .. PARTITION OF would wait for every open transaction that
-- has written to the outbox, and all later ones would queue up behind it.
DECLARE
    last_seq bigint;
    next_seq bigint;
    name     text;
    added    integer := 0;
BEGIN
    IF ahead < 1 OR size < 1 THEN
        RAISE EXCEPTION 'ahead and size must be positive' USING ERRCODE = '22023';
    END IF;
    PERFORM pg_advisory_xact_lock(8206170491302);
    SELECT s.last_value INTO last_seq FROM rung.outbox_seq s;
    SELECT coalesce(max(p.to_seq), 1) INTO next_seq FROM rung.outbox_partition p;
    WHILE next_seq <= last_seq + ahead LOOP
        name := format('outbox_p%s', lpad(next_seq::text, 19, '0'));
        EXECUTE format('CREATE TABLE rung.%I (LIKE rung.outbox INCLUDING ALL)', name);
        EXECUTE format('ALTER TABLE rung.outbox ATTACH PARTITION rung.%I FOR VALUES FROM (%s) TO (%s)',
                       name, next_seq, next_seq + size);
        INSERT INTO rung.outbox_partition VALUES (name, next_seq, next_seq + size);
        next_seq := next_seq + size;
        added := added + 1;
    END LOOP;
    RETURN added;
END
$$;
REVOKE ALL ON FUNCTION rung.outbox_add_partitions(bigint, bigint) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION rung.outbox_add_partitions(bigint, bigint) TO rung_relay;

SELECT rung.outbox_add_partitions(8000000, 1000000);

CREATE TABLE rung.outbox_dead (
    seq           bigint      PRIMARY KEY,
    id            uuid        NOT NULL,
    aggregatetype text        NOT NULL,
    aggregateid   text        NOT NULL,
    type          text        NOT NULL,
    payload       jsonb       NOT NULL,
    xid           xid8        NOT NULL,
    bucket        smallint    NOT NULL,
    created_at    timestamptz NOT NULL,
    reason        text        NOT NULL,
    detail        text        NOT NULL,
    at            timestamptz NOT NULL DEFAULT clock_timestamp()
);
COMMENT ON TABLE rung.outbox_dead IS 'Rows that can never be published, with the reason; kept until someone removes them.';
