-- Reads the last event of each of many tasks.
-- $1 kinds, $2 biz_ids: text array literals of one length.
-- Returns a row for each task that exists: its number in the arrays, from 1, and version and type of its last event.
-- Locks nothing. Index: primary key, backwards; the lateral limit keeps the planner on it.
select k.n, head.version::bigint, head.type::text
  from unnest($1::text::text[], $2::text::text[]) with ordinality as k(kind, biz_id, n)
 cross join lateral (
   select e.version, e.type
     from taskledger.event e
    where e.kind = k.kind and e.biz_id = k.biz_id
    order by e.version desc
    limit 1) head
