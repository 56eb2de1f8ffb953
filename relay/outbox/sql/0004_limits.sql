-- What no reader could take is refused where it is written, in place of becoming a dead letter later: data and profiles
-- that do not fit their records, and numbers that only some readers of JSON can hold.

CREATE FUNCTION rung.check_content(argument text, value jsonb, max_bytes integer) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    size CONSTANT integer := octet_length(value::text);
BEGIN
    IF size > max_bytes THEN
        PERFORM rung.refuse_argument(argument, format('is %s bytes long as JSON text', size),
                                     format('At most %s bytes are taken: pass a link to what is larger.', max_bytes));
    END IF;
    -- PostgreSQL writes 1e300 with all its digits, and numbers beyond a double's are read by few.
    IF jsonb_path_exists(value, '$.** ? (@.type() == "number" && (@ > 1e308 || @ < -1e308))') THEN
        PERFORM rung.refuse_argument(argument, 'holds a number beyond 1e308', 'Pass such a number as a string.');
    END IF;
END
$$;
REVOKE ALL ON FUNCTION rung.check_content FROM PUBLIC;

CREATE OR REPLACE FUNCTION rung.notify(
    recipient text, kind text, data jsonb, dedup_key text,
    expires_at timestamptz DEFAULT NULL, notification_id uuid DEFAULT NULL
) RETURNS uuid
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
    known text;
    named uuid;
    payload jsonb;
BEGIN
    PERFORM rung.check_recipient(recipient);
    PERFORM rung.check_text('kind', kind, 512);
    IF NOT EXISTS (SELECT FROM rung.kind k WHERE k.name = kind) THEN
        SELECT string_agg(k.name, ', ' ORDER BY k.name) INTO known FROM rung.kind k;
        PERFORM rung.refuse_argument('kind', 'is not known: ' || quote_literal(left(kind, 80)),
            coalesce('Known kinds: ' || known || '.', 'No kind is known yet: publish the ladders with `rung ladders apply`.'));
    END IF;
    PERFORM rung.check_object('data', data, 'Pass a JSON object with what the templates use; ''{}'' if nothing.');
    PERFORM rung.check_content('data', data, 1040000);
    -- Readers of JSON have a limit of their own, and a record that one of them cannot read is a dead letter.
    IF jsonb_path_exists(data, '$.**{65}') THEN
        PERFORM rung.refuse_argument('data', 'is nested deeper than 64 levels', 'Pass what the templates use, less deep.');
    END IF;
    PERFORM rung.check_text('dedup_key', dedup_key, 512);
    IF expires_at NOT BETWEEN '1970-01-01 00:00:00+00' AND '9999-12-31 00:00:00+00' THEN
        PERFORM rung.refuse_argument('expires_at', 'is out of range',
                                     'Pass a time between the years 1970 and 9999, or NULL for the ladder''s own expiry.');
    END IF;
    named := coalesce(notification_id, rung.notification_id(recipient, dedup_key));
    payload := jsonb_build_object('notification_id', named, 'recipient', recipient, 'kind', kind,
                                  'dedup_key', dedup_key, 'data', data);
    IF expires_at IS NOT NULL THEN
        payload := payload || jsonb_build_object('expires_at', floor(extract(epoch FROM expires_at) * 1000)::bigint);
    END IF;
    INSERT INTO rung.outbox (aggregatetype, aggregateid, type, payload)
    VALUES ('notifications', recipient, 'rung.notify', payload);
    RETURN named;
END
$$;

CREATE OR REPLACE FUNCTION rung.put_recipient(recipient text, profile jsonb) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
BEGIN
    PERFORM rung.check_recipient(recipient);
    PERFORM rung.check_profile(profile);
    PERFORM rung.check_content('profile', profile, 250000);
    INSERT INTO rung.outbox (aggregatetype, aggregateid, type, payload)
    VALUES ('notifications', recipient, 'rung.put_recipient',
            jsonb_build_object('recipient', recipient, 'profile', profile));
END
$$;
