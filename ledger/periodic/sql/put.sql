-- Creates a schedule, or replaces the definition of an existing schedule; its history stays.
-- $1 name, $2 kind, $3 args (JSON text or null), $4 cron, $5 zone, $6 every in milliseconds,
-- $7 anchor, $8 fixed delay in milliseconds (each null if it is not set), $9 missed, $10 missed limit,
-- $11 overlap, $12 actor or null for session_user, $13 next firing or null.
-- Locks that row. Index: primary key.
insert into taskledger.schedule as s
       (name, kind, args, cron, zone, every_ms, anchor, fixed_delay_ms, missed, missed_limit, overlap, actor, next_at)
values ($1::text, $2::text, $3::text::json, $4::text, $5::text, $6::bigint, $7::text::timestamptz, $8::bigint,
        $9::text, $10::integer, $11::text, coalesce($12::text, session_user), $13::text::timestamptz)
    on conflict (name) do update
   set kind = excluded.kind, args = excluded.args, cron = excluded.cron, zone = excluded.zone,
       every_ms = excluded.every_ms, anchor = excluded.anchor, fixed_delay_ms = excluded.fixed_delay_ms,
       missed = excluded.missed, missed_limit = excluded.missed_limit, overlap = excluded.overlap,
       actor = excluded.actor, next_at = excluded.next_at, revision = s.revision + 1, updated_at = clock_timestamp()
