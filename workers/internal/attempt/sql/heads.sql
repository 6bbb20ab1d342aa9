-- What the ledger says about the tasks whose messages arrived together.
-- $1 kind; $2 biz_ids and $3 versions of the messages' events: text array literals of one length.
-- Answers, for each task that exists, its number in the list (from 1), its last event, when the
-- message's own event was recorded (null: there is no such event), and for how many milliseconds
-- the worker that appended the last event is still alive (0: it is not, or it is no worker); and
-- the database's clock.
-- Locks nothing. Index: primary keys; the lateral limits keep the planner on them.
select r.i::integer, h.version, h.type::text, h.attempt, coalesce(h.actor, ''),
       (extract(epoch from case when h.version = r.version then h.recorded_at else m.recorded_at end) * 1e6)::bigint,
       coalesce(l.left_ms, 0), (extract(epoch from clock_timestamp()) * 1e6)::bigint
  from unnest($2::text::text[], $3::text::integer[]) with ordinality as r(biz_id, version, i)
 cross join lateral (
   select e.version, e.type, e.attempt, e.actor, e.recorded_at
     from taskledger.event e
    where e.kind = $1::text and e.biz_id = r.biz_id
    order by e.version desc
    limit 1) h
  left join lateral (
   select e.recorded_at
     from taskledger.event e
    where h.version > r.version and e.kind = $1::text and e.biz_id = r.biz_id and e.version = r.version
    limit 1) m on true
  left join lateral (
   select greatest(0, extract(epoch from w.alive_until - clock_timestamp()) * 1000)::bigint as left_ms
     from taskledger.lease w
    where h.type in ('started', 'progressed') and w.name = 'worker/' || h.actor
    limit 1) l on true
