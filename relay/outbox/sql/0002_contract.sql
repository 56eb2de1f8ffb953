-- The public contract: four functions that check their arguments and add one row to the outbox, in the caller's
-- transaction. Every refusal is SQLSTATE 22023, starts with the argument's name, carries it as the error's COLUMN, and
-- has a HINT. No message repeats a value that may be personal.
--
-- The four run as their owner with a fixed search path, so a caller needs no right on any table and cannot slip in an
-- object of its own. What they call inherits that path: setting it again would cost more than the checks do.

CREATE FUNCTION rung.refuse_argument(argument text, problem text, remedy text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = argument || ' ' || problem, HINT = remedy,
        COLUMN = split_part(argument, '.', 1), SCHEMA = 'rung';
END
$$;

CREATE FUNCTION rung.check_text(argument text, value text, max_bytes integer) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF value IS NULL THEN
        PERFORM rung.refuse_argument(argument, 'is null', 'Pass a text that is not empty.');
    ELSIF value = '' THEN
        PERFORM rung.refuse_argument(argument, 'is empty', 'Pass a text that is not empty.');
    ELSIF octet_length(value) > max_bytes THEN
        PERFORM rung.refuse_argument(argument, format('is %s bytes long', octet_length(value)),
                                     format('At most %s bytes of UTF-8 are taken.', max_bytes));
    END IF;
END
$$;

CREATE FUNCTION rung.check_recipient(value text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM rung.check_text('recipient', value, 512);
    IF value ~ '[\u0001-\u001f\u007f-\u009f]' THEN
        PERFORM rung.refuse_argument('recipient', 'holds a control character',
                                     'Pass your own stable id of the person, without line breaks or tabs.');
    END IF;
END
$$;

CREATE FUNCTION rung.check_object(argument text, value jsonb, remedy text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF value IS NULL THEN
        PERFORM rung.refuse_argument(argument, 'is null', remedy);
    ELSIF jsonb_typeof(value) <> 'object' THEN
        PERFORM rung.refuse_argument(argument, format('is a JSON %s and not an object', jsonb_typeof(value)), remedy);
    END IF;
END
$$;

CREATE FUNCTION rung.check_map(argument text, value jsonb, member_type text, remedy text) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    wrong text;
BEGIN
    PERFORM rung.check_object(argument, value, remedy);
    SELECT m.key INTO wrong FROM jsonb_each(value) m WHERE jsonb_typeof(m.value) <> member_type LIMIT 1;
    IF wrong IS NOT NULL THEN
        PERFORM rung.refuse_argument(format('%s.%s', argument, left(wrong, 80)), format('is no %s', member_type), remedy);
    END IF;
END
$$;

CREATE FUNCTION rung.check_members(argument text, value jsonb, known text[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    wrong text;
BEGIN
    SELECT m INTO wrong FROM jsonb_object_keys(value) m WHERE m <> ALL (known) ORDER BY m LIMIT 1;
    IF wrong IS NOT NULL THEN
        PERFORM rung.refuse_argument(format('%s.%s', argument, left(wrong, 80)), 'is not known',
                                     'Known members: ' || array_to_string(known, ', ') || '.');
    END IF;
END
$$;

CREATE TABLE rung.time_zone (name text PRIMARY KEY);
COMMENT ON TABLE rung.time_zone IS 'pg_timezone_names as it was at the migration: reading the view takes many milliseconds.';
INSERT INTO rung.time_zone SELECT DISTINCT z.name FROM pg_catalog.pg_timezone_names z;

CREATE FUNCTION rung.check_profile(profile jsonb) RETURNS void
LANGUAGE plpgsql AS $$
-- A profile replaces the one before, so a misspelt member would wipe what it was to set: unknown ones are refused.
DECLARE
    part jsonb;
    item record;
BEGIN
    PERFORM rung.check_object('profile', profile, 'Pass a JSON object; every part of a profile is optional.');
    PERFORM rung.check_members('profile', profile,
        ARRAY['addresses', 'time_zone', 'locale', 'quiet_hours', 'preferences', 'consent']);
    IF profile ? 'addresses' THEN
        PERFORM rung.check_map('profile.addresses', profile -> 'addresses', 'string',
                               'Pass an object of channel names and addresses: {"email": "ada@example.test"}.');
    END IF;
    part := profile -> 'time_zone';
    IF part IS NOT NULL AND part <> 'null' THEN
        IF jsonb_typeof(part) <> 'string'
           OR NOT EXISTS (SELECT FROM rung.time_zone z WHERE z.name = part #>> '{}')
           AND NOT EXISTS (SELECT FROM pg_timezone_names z WHERE z.name = part #>> '{}') THEN
            PERFORM rung.refuse_argument('profile.time_zone', 'is no time zone',
                                         'Pass an IANA name, such as "Europe/Berlin", in its exact spelling.');
        END IF;
    END IF;
    part := profile -> 'locale';
    IF part IS NOT NULL AND jsonb_typeof(part) NOT IN ('string', 'null') THEN
        PERFORM rung.refuse_argument('profile.locale', 'is no string', 'Pass a BCP 47 tag, such as "de".');
    END IF;
    part := profile -> 'quiet_hours';
    IF part IS NOT NULL AND part <> 'null' THEN
        PERFORM rung.check_quiet_hours(part);
    END IF;
    IF profile ? 'preferences' THEN
        PERFORM rung.check_map('profile.preferences', profile -> 'preferences', 'object',
                               'Pass an object of kinds, each an object of channels: {"news": {"push": false}}.');
        FOR item IN SELECT m.key, m.value FROM jsonb_each(profile -> 'preferences') m LOOP
            PERFORM rung.check_map(format('profile.preferences.%s', left(item.key, 80)), item.value, 'boolean',
                                   'Pass true or false for each channel: {"push": false}.');
        END LOOP;
    END IF;
    IF profile ? 'consent' THEN
        PERFORM rung.check_map('profile.consent', profile -> 'consent', 'boolean',
                               'Pass true or false for each kind: {"news": false}.');
    END IF;
END
$$;

CREATE FUNCTION rung.check_quiet_hours(hours jsonb) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    remedy CONSTANT text := 'Pass local times from 00:00 to 23:59: {"from": "22:00", "until": "08:00"}.';
    part text;
BEGIN
    PERFORM rung.check_object('profile.quiet_hours', hours, remedy);
    PERFORM rung.check_members('profile.quiet_hours', hours, ARRAY['from', 'until']);
    FOREACH part IN ARRAY ARRAY['from', 'until'] LOOP
        IF coalesce(jsonb_typeof(hours -> part), '') <> 'string'
           OR (hours ->> part) !~ '^([01][0-9]|2[0-3]):[0-5][0-9]$' THEN
            PERFORM rung.refuse_argument(format('profile.quiet_hours.%s', part), 'is no time of the form HH:MM', remedy);
        END IF;
    END LOOP;
    IF hours ->> 'from' = hours ->> 'until' THEN
        PERFORM rung.refuse_argument('profile.quiet_hours', 'starts when it ends',
                                     'Leave quiet_hours out for none; a whole day of silence cannot be asked for.');
    END IF;
END
$$;

CREATE FUNCTION rung.notification_id(recipient text, dedup_key text) RETURNS uuid
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
-- RFC 9562 version 8 from SHA-256 of a namespace and the name (appendix B.2): the server has SHA-256 built in, and
-- SHA-1, which version 5 asks for, only as an extension. The recipient's length keeps ('a','bc') and ('ab','c') apart.
SELECT encode(set_byte(set_byte(substr(h.digest, 1, 16),
                                6, (get_byte(h.digest, 6) & 15) | 128),
                       8, (get_byte(h.digest, 8) & 63) | 128), 'hex')::uuid
FROM (SELECT sha256('\x9a3c1f0e5d7b4c62a8f1d2b36e90475c'::bytea
                    || convert_to(octet_length(recipient)::text || ':' || recipient || dedup_key, 'UTF8'))) AS h(digest)
$$;

CREATE FUNCTION rung.notify(
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
COMMENT ON FUNCTION rung.notify IS
    'Tell this recipient this thing, once per dedup_key; takes effect when the transaction commits. Returns the id.';

CREATE FUNCTION rung.resolve(recipient text, dedup_key text, resolution text) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
BEGIN
    PERFORM rung.check_recipient(recipient);
    PERFORM rung.check_text('dedup_key', dedup_key, 512);
    PERFORM rung.check_text('resolution', resolution, 128);
    INSERT INTO rung.outbox (aggregatetype, aggregateid, type, payload)
    VALUES ('resolutions', recipient, 'rung.resolve',
            jsonb_build_object('recipient', recipient, 'dedup_key', dedup_key, 'resolution', resolution));
END
$$;
COMMENT ON FUNCTION rung.resolve IS 'The person acted: whatever is pending for this dedup_key is not needed any more.';

CREATE FUNCTION rung.put_recipient(recipient text, profile jsonb) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
BEGIN
    PERFORM rung.check_recipient(recipient);
    PERFORM rung.check_profile(profile);
    INSERT INTO rung.outbox (aggregatetype, aggregateid, type, payload)
    VALUES ('notifications', recipient, 'rung.put_recipient',
            jsonb_build_object('recipient', recipient, 'profile', profile));
END
$$;
COMMENT ON FUNCTION rung.put_recipient IS 'The recipient''s whole profile; it replaces the one before.';

CREATE FUNCTION rung.erase_recipient(recipient text) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
BEGIN
    PERFORM rung.check_recipient(recipient);
    INSERT INTO rung.outbox (aggregatetype, aggregateid, type, payload)
    VALUES ('notifications', recipient, 'rung.erase_recipient', jsonb_build_object('recipient', recipient));
END
$$;
COMMENT ON FUNCTION rung.erase_recipient IS 'Forget this person: everything pending stops, every personal field goes.';

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA rung FROM PUBLIC;
GRANT EXECUTE ON FUNCTION
    rung.notify(text, text, jsonb, text, timestamptz, uuid),
    rung.resolve(text, text, text),
    rung.put_recipient(text, jsonb),
    rung.erase_recipient(text)
TO rung_producer;
