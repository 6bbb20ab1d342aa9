-- Selects the last events of tasks that another process has given to workers over HTTP.
-- $1 kinds, $2 biz_ids, $3 workers, $4 versions of the offered events, $5 versions of the last events before the
-- attempts: text array literals of the same length.
-- Returns for each existing task its number in the lists (from 1); version, type, attempt and actor of its last event;
-- the actor of the first event after $5; the version of the event with its run's args; for how many milliseconds the
-- lease of the attempt's worker is still valid; the age of the last event in milliseconds; and when the offered event
-- was recorded (null: it does not exist). Locks nothing. Indexes: primary keys, event_run.
select r.i::integer, h.version, h.type::text, h.attempt, coalesce(h.actor, ''),
       case when h.actor = r.worker then r.worker
            else coalesce((
              select b.actor from taskledger.event b
               where b.kind = r.kind and b.biz_id = r.biz_id and b.version = r.before + 1), '') end,
       taskledger_internal.args_version(r.kind, r.biz_id),
       coalesce((
         select w.alive_ms
           from taskledger_internal.worker_alive_ms(
                  case when h.type in ('started', 'progressed') then h.actor else r.worker end, r.kind) w
          limit 1), 0),
       greatest(0, extract(epoch from clock_timestamp() - h.recorded_at) * 1000)::bigint,
       (select (date_part('epoch', o.recorded_at) * 1e6)::bigint
          from taskledger.event o
         where o.kind = r.kind and o.biz_id = r.biz_id and o.version = r.offered)
  from unnest((select $1::text::text[]), (select $2::text::text[]), (select $3::text::text[]),
              (select $4::text::integer[]), (select $5::text::integer[]))
       with ordinality as r(kind, biz_id, worker, offered, before, i)
 cross join lateral (
   select e.version, e.type, e.attempt, e.actor, e.recorded_at
     from taskledger.event e
    where e.kind = r.kind and e.biz_id = r.biz_id
    order by e.version desc
    limit 1) h
