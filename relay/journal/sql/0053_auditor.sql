-- `rung audit` as a login of its own: it reads what it judges, and changes nothing.
DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = 'rung_auditor') THEN
        CREATE ROLE rung_auditor NOLOGIN;
    END IF;
EXCEPTION WHEN duplicate_object OR unique_violation THEN
    NULL;
END
$$;

GRANT USAGE ON SCHEMA rung TO rung_auditor;
GRANT SELECT ON rung.outbox, rung.outbox_cursor, rung.outbox_dead, rung.delivery_event, rung.journal_offset,
    rung.schema_migration
TO rung_auditor;

-- The continuous audit reads the newest part of a day, again and again; events come nearly in the order of their time,
-- so a summary of page ranges finds it at next to no cost for the writer.
CREATE INDEX delivery_event_at ON rung.delivery_event USING brin (at) WITH (pages_per_range = 16, autosummarize = on);
