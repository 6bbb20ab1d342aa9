-- The last events of tasks whose attempts another process has given to workers over HTTP.
-- $1 kinds, $2 biz_ids, $3 workers and $4 versions of the offered events: text array literals of one length.
-- Returns, for each task that exists, its number in the lists (from 1), version, type, attempt and actor of its last
-- event, the version of the event with the args of its run, for how many milliseconds the worker's lease is still
-- valid, and when the offered event was recorded (null: it does not exist). Locks nothing. Indexes: primary keys,
-- event_run.
select r.i::integer, h.version, h.type::text, h.attempt, coalesce(h.actor, ''),
       taskledger_internal.args_version(r.kind, r.biz_id),
       coalesce((select w.alive_ms from taskledger_internal.worker_alive_ms(r.worker, r.kind) w limit 1), 0),
       (select (date_part('epoch', o.recorded_at) * 1e6)::bigint
          from taskledger.event o
         where o.kind = r.kind and o.biz_id = r.biz_id and o.version = r.offered)
  from unnest((select $1::text::text[]), (select $2::text::text[]), (select $3::text::text[]),
              (select $4::text::integer[]))
       with ordinality as r(kind, biz_id, worker, offered, i)
 cross join lateral (
   select e.version, e.type, e.attempt, e.actor
     from taskledger.event e
    where e.kind = r.kind and e.biz_id = r.biz_id
    order by e.version desc
    limit 1) h
