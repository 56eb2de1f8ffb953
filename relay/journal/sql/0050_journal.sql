-- The journal: what happened to every notification, as published on the topic delivery-events.

-- Up to where each partition of the topic has been written. It moves in the transaction that writes the events, so an
-- event counts once whatever crashes; a writer that lost its partition finds another value here and cannot write.
CREATE TABLE rung.journal_offset (
    topic       text        NOT NULL,
    partition   integer     NOT NULL,
    next_offset bigint      NOT NULL,
    updated_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (topic, partition)
);

-- One row per event and never an UPDATE; a partition per UTC day, dropped whole when its retention is over, so nothing
-- is ever vacuumed away. Times are milliseconds since the epoch, as in the records.
CREATE TABLE rung.delivery_event (
    at              bigint  NOT NULL,
    event_id        uuid    NOT NULL,
    type            text    NOT NULL,
    notification_id uuid    NOT NULL,
    recipient       text    NOT NULL,
    kind            text    NOT NULL,
    dedup_key       text    NOT NULL,
    step_no         integer,
    channel         text,
    provider        text,
    attempt         integer,
    key             text,
    reason          text    NOT NULL,
    detail          text,
    due_at          bigint,
    next_due_at     bigint,
    provider_ref    text,
    latency_ms      bigint,
    steps           jsonb,
    depth           integer,
    expires_at      bigint,
    kafka_partition integer NOT NULL,
    kafka_offset    bigint  NOT NULL,
    -- An event that the topic holds twice has the same id and the same time.
    PRIMARY KEY (event_id, at)
) PARTITION BY RANGE (at);

CREATE INDEX delivery_event_notification ON rung.delivery_event (notification_id);

-- A hash, because a recipient and a dedup key together may be longer than an index entry can be.
CREATE FUNCTION rung.dedup_hash(recipient text, dedup_key text) RETURNS bigint
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    RETURN hashtextextended(dedup_key, hashtextextended(recipient, 0));

CREATE INDEX delivery_event_dedup_key ON rung.delivery_event (rung.dedup_hash(recipient, dedup_key))
    WHERE type = 'rung.notification.accepted';

-- One row per notification, for people with SQL. It is a view: kept as a table it would be rewritten at every step.
-- A request of an unknown kind is no notification, and a corrected one may follow under the same id.
CREATE VIEW rung.notification AS
SELECT notification_id,
       recipient,
       kind,
       dedup_key,
       coalesce(
           (array_agg(split_part(type, '.', 3) ORDER BY at DESC, kafka_offset DESC) FILTER (WHERE ends))[1],
           CASE WHEN bool_or(type = 'rung.notification.accepted') THEN 'open'
                WHEN bool_or(reason = 'unknown_kind') THEN 'dead'
                ELSE 'open' END) AS status,
       to_timestamp(max(at) FILTER (WHERE type = 'rung.notification.accepted') / 1000.0) AS accepted_at,
       to_timestamp(max(expires_at) / 1000.0) AS expires_at,
       to_timestamp(max(at) FILTER (WHERE ends) / 1000.0) AS ended_at,
       (array_agg(detail ORDER BY at DESC, kafka_offset DESC) FILTER (WHERE type = 'rung.notification.resolved'))[1]
           AS resolution,
       max(depth) AS depth,
       count(*) FILTER (WHERE type = 'rung.step.claimed') AS claims,
       count(DISTINCT step_no) FILTER (WHERE type = 'rung.step.sent') AS steps_sent,
       count(DISTINCT step_no) FILTER (WHERE type = 'rung.step.suppressed') AS steps_suppressed,
       max(step_no) FILTER (WHERE type = 'rung.step.claimed') AS last_step_claimed,
       to_timestamp(max(at) / 1000.0) AS last_event_at
FROM (SELECT *,
             reason <> 'unknown_kind'
                 AND type IN ('rung.notification.resolved', 'rung.notification.expired', 'rung.notification.finished',
                              'rung.notification.dead', 'rung.notification.erased') AS ends
      FROM rung.delivery_event) AS e
GROUP BY notification_id, recipient, kind, dedup_key;

-- Roles belong to the cluster, so another database of it may have made them already, even at this moment.
DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = 'rung_reader') THEN
        CREATE ROLE rung_reader NOLOGIN;
    END IF;
EXCEPTION WHEN duplicate_object OR unique_violation THEN
    NULL;
END
$$;

-- To give tables to a role takes the right to act as it, which a superuser has without a grant.
DO $$
BEGIN
    IF NOT pg_has_role(current_user, 'rung_journal', 'MEMBER') THEN
        EXECUTE format('GRANT rung_journal TO %I', current_user);
    END IF;
END
$$;

-- The journal makes and drops partitions, so the table is its own. A reader sees everything and changes nothing.
GRANT CREATE ON SCHEMA rung TO rung_journal;
GRANT SELECT ON rung.kind TO rung_journal;
GRANT USAGE ON SCHEMA rung TO rung_reader;
ALTER TABLE rung.delivery_event OWNER TO rung_journal;
ALTER TABLE rung.journal_offset OWNER TO rung_journal;
ALTER FUNCTION rung.dedup_hash(text, text) OWNER TO rung_journal;
ALTER VIEW rung.notification OWNER TO rung_journal;
GRANT SELECT ON rung.delivery_event, rung.journal_offset, rung.notification TO rung_reader;
GRANT EXECUTE ON FUNCTION rung.dedup_hash(text, text) TO rung_reader;
