-- Reads the event after version $3 of a task, if it is the event that a request would have appended.
-- $1 kind, $2 biz_id, $3 expected version, $4 type, $5 actor or null for session_user, $6 data and
-- $7 meta (JSON text or null).
-- Returns one row or none. Locks nothing. Index: primary key.
select e.position, e.version, e.attempt, e.shard, e.type::text, e.priority, coalesce(e.partition, ''),
       coalesce(e.order_key, ''), (date_part('epoch', e.recorded_at) * 1e6)::bigint,
       e.actor, coalesce((select l.name from taskledger.logins l where l.id = e.login_id), '')
  from taskledger.event e
 where e.kind = $1::text and e.biz_id = $2::text and e.version = $3::integer + 1
   and e.type = $4::text::taskledger.event_type and e.actor = coalesce($5::text, session_user)
   and e.data::text is not distinct from $6::text and e.meta::text is not distinct from $7::text
