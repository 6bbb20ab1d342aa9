-- Changes a task by taskledger_internal.change: with the rights of an operator's role, or of a producer's.
-- $1 kind, $2 biz_id, $3 type of the event, $4 version that the task must have, or null, $5 actor or null for
-- session_user, $6 reason or null for a default, $7 microseconds after which the task is due, $8 due time, $9 priority
-- (null if not set).
-- Returns one row: why nothing was written, or an empty text; state and version before the change; and the new event.
-- Waits for concurrent transactions that append to the task. Locks nothing else. Indexes: primary key, event_run.
select c.outcome, coalesce(c.state::text, ''), coalesce(c.version, 0), coalesce((c.appended).position, 0),
       coalesce((c.appended).version, 0), coalesce((c.appended).attempt, 0), coalesce((c.appended).shard::integer, 0),
       coalesce((c.appended).type::text, ''), coalesce((c.appended).priority::integer, 0),
       coalesce((c.appended).partition, ''), coalesce((c.appended).order_key, ''),
       coalesce((date_part('epoch', (c.appended).recorded_at) * 1e6)::bigint, 0), coalesce((c.appended).actor, ''),
       session_user::text, (c.appended).data::text
  from taskledger_internal.change($1::text, $2::text, $3::text::taskledger.event_type, $4::integer, $5::text, $6::text,
                                  $7::bigint, $8::text::timestamptz, $9::integer) c
