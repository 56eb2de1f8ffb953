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

-- Every object that a caller passes goes through here: the whole ones have a limit, and their parts are within it.
CREATE OR REPLACE FUNCTION rung.check_object(argument text, value jsonb, remedy text) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    max_bytes CONSTANT integer := CASE argument WHEN 'data' THEN 1040000 WHEN 'profile' THEN 250000 END;
BEGIN
    IF value IS NULL THEN
        PERFORM rung.refuse_argument(argument, 'is null', remedy);
    ELSIF jsonb_typeof(value) <> 'object' THEN
        PERFORM rung.refuse_argument(argument, format('is a JSON %s and not an object', jsonb_typeof(value)), remedy);
    ELSIF max_bytes IS NOT NULL THEN
        PERFORM rung.check_content(argument, value, max_bytes);
    END IF;
END
$$;
