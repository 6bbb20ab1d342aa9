-- Selects the metas that may contain tags among the next $3 events, of tasks that are projected. $1 position to
-- continue after, $2 position of the last event, $3 maximum number of events. Returns the number of events and the
-- position of the last one, with null or the position and meta of a first event. A name of a member may be escaped in
-- JSON. Locks nothing. Indexes: (position) of event, primary key of task; the lateral limit keeps the planner on it.
with page as materialized (
  select e.position, e.kind, e.biz_id, e.version, e.meta
    from taskledger.event e
   where e.position > $1::bigint and e.position <= $2::bigint
   order by e.position
   limit $3::integer
), reached as (
  select count(*) as events, coalesce(max(p.position), 0) as position from page p
)
select reached.events, reached.position, f.position, f.meta
  from reached
  left join (
    select p.position, p.meta::text as meta
      from page p
     cross join lateral (
       select from taskledger.task c where c.kind = p.kind and c.biz_id = p.biz_id limit 1) t
     where p.version = 1
       and (strpos(p.meta::text, 'tags') > 0 or strpos(p.meta::text, chr(92) || 'u') > 0)) f on true
