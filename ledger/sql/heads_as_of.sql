-- The last events of the next tasks as of a place, in key order, as heads_page reads them. Returns the
-- matching events, and the last event of the page in any case: first whether an event ends the page, and whether it
-- matches.
-- $1 seen, $2 until, $3 after_position, $4 top of the place; $5 kind and $6 biz_id to continue after, $7 the last kind;
-- $8 number of tasks to read; $9 states (array literal, empty: all).
-- Locks nothing. Index: primary key, from the key on.
select h.ordinality = $8::bigint, m.matches,
       h.position, h.version, h.attempt, h.shard, h.type::text, (extract(epoch from h.recorded_at) * 1e6)::bigint,
       h.kind, h.biz_id, coalesce(h.actor, ''),
       coalesce((select l.name from taskledger.logins l where l.id = h.login_id), ''),
       h.data_version, h.priority, coalesce(h.partition, ''), coalesce(h.run, 0), coalesce(h.order_key, ''),
       h.data::text, h.meta::text
  from taskledger_internal.heads_page($1::text::pg_snapshot, $2::text::pg_snapshot, $3::bigint, $4::bigint, $5::text,
                                      $6::text, $7::text, $8::integer) with ordinality h
 cross join lateral (
   select $9::text = '{}' or taskledger.state_after(h.type) = any($9::text::taskledger.task_state[]) as matches
   offset 0) m
 where m.matches or h.ordinality = $8::bigint
