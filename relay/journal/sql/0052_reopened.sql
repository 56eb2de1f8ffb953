-- A notification may begin again under its id: a redrive opens it once more, and a dedup key may be used anew after its
-- retention. Where it stands is told by the last event that begins or ends it, and not by any end that it ever had.
CREATE OR REPLACE VIEW rung.notification AS
SELECT notification_id,
       recipient,
       kind,
       dedup_key,
       coalesce(
           (array_agg(CASE WHEN begins THEN 'open' ELSE split_part(type, '.', 3) END ORDER BY at DESC, kafka_offset DESC)
               FILTER (WHERE begins OR ends))[1],
           CASE WHEN bool_or(reason = 'unknown_kind') THEN 'dead' ELSE 'open' END) AS status,
       to_timestamp(max(at) FILTER (WHERE begins) / 1000.0) AS accepted_at,
       to_timestamp((array_agg(expires_at ORDER BY at DESC, kafka_offset DESC) FILTER (WHERE begins))[1] / 1000.0)
           AS expires_at,
       CASE WHEN (array_agg(ends ORDER BY at DESC, kafka_offset DESC) FILTER (WHERE begins OR ends))[1]
            THEN to_timestamp(max(at) FILTER (WHERE ends) / 1000.0) END AS ended_at,
       (array_agg(detail ORDER BY at DESC, kafka_offset DESC) FILTER (WHERE type = 'rung.notification.resolved'))[1]
           AS resolution,
       max(depth) AS depth,
       count(*) FILTER (WHERE type = 'rung.step.claimed') AS claims,
       count(DISTINCT step_no) FILTER (WHERE type = 'rung.step.sent') AS steps_sent,
       count(DISTINCT step_no) FILTER (WHERE type = 'rung.step.suppressed') AS steps_suppressed,
       max(step_no) FILTER (WHERE type = 'rung.step.claimed') AS last_step_claimed,
       to_timestamp(max(at) / 1000.0) AS last_event_at
FROM (SELECT *,
             type = 'rung.notification.accepted' AS begins,
             reason <> 'unknown_kind'
                 AND type IN ('rung.notification.resolved', 'rung.notification.expired', 'rung.notification.finished',
                              'rung.notification.dead', 'rung.notification.erased') AS ends
      FROM rung.delivery_event) AS e
GROUP BY notification_id, recipient, kind, dedup_key;
