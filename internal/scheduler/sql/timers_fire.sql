-- Appends the events of due timers and removes the timers, or does neither: see taskledger_internal.fire_timers.
-- $1 moment at which to start, $2 maximum number of timers; $3 types of events that released may follow, $4
-- that expired may follow (text array literals); $5 keys (kind/biz_id) to leave out; $6 due_at, $7 kinds and $8 biz_ids
-- of the only timers ('{}': all from $1 on). All of $5 to $8 are text array literals.
-- Returns one row: the clock that decided; the number of timers locked, of released and of expired events
-- appended, and of timers kept; of the only timers the number that another session has locked; due_at of the first
-- and the last timer locked, or null.
-- Locks the timers, skipping locked ones; waits for concurrent appends to the tasks, in the order of the keys.
-- Index: primary keys.
select (extract(epoch from f.clock) * 1e6)::bigint, f.timers, f.released, f.expired, f.kept, f.elsewhere,
       (extract(epoch from nullif(f.first_due_at, '-infinity')) * 1e6)::bigint,
       (extract(epoch from nullif(f.last_due_at, '-infinity')) * 1e6)::bigint
  from taskledger_internal.fire_timers($1::text::timestamptz, $2::integer, $3::text::taskledger.event_type[],
                                       $4::text::taskledger.event_type[], $5::text::text[], $6::text::timestamptz[],
                                       $7::text::text[], $8::text::text[]) f
