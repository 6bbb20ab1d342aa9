-- Selects the last waking event, with the content of its message, of tasks that are available or running,
-- among the next 1000 waking events after a position.
-- $1 position to begin after, $2 last position.
-- Returns in position order. The first column is the position that the search reached: in a row of nulls if
-- it found no such task, and null if there were no events.
-- Locks nothing. Indexes: (position), and the primary key twice for each event.
with walked as materialized (
  select e.position, e.version, e.attempt, e.shard, e.type, e.recorded_at, e.kind, e.biz_id, e.meta
    from taskledger.event e
   where e.position > $1::bigint and e.position <= $2::bigint
     and e.type in ('enqueued', 'released', 'interrupted')
   order by e.position
   limit 1000)
select reached.position, u.position, u.version, u.attempt, u.shard, u.type::text,
       (extract(epoch from u.recorded_at) * 1e6)::bigint, u.kind, u.biz_id,
       u.meta::text, u.args_data::text, u.args_meta::text
  from (select max(w.position) as position from walked w) reached
  left join (
   select w.position, w.version, w.attempt, w.shard, w.type, w.recorded_at, w.kind, w.biz_id, w.meta,
          first.data as args_data, first.meta as args_meta
     from walked w
    cross join lateral (
      select h.type from taskledger.event h
       where h.kind = w.kind and h.biz_id = w.biz_id
       order by h.version desc
       limit 1) head
    cross join lateral (
      select f.data, f.meta from taskledger.event f
       where f.kind = w.kind and f.biz_id = w.biz_id and f.version = 1) first
    where taskledger.state_after(head.type) in ('available', 'running')
      and not exists (
        select from taskledger.event l
         where l.kind = w.kind and l.biz_id = w.biz_id and l.version > w.version
           and l.type in ('enqueued', 'released', 'interrupted'))) u on true
 order by u.position
