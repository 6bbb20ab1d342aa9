-- The tasks among some that no run has removed, as numbers from 1, in order.
-- $1 kinds, $2 biz_ids, $3 last versions: array literals of one length.
-- Locks nothing. Index: primary key; the lateral limit keeps the planner on it.
select k.n
  from unnest($1::text::text[], $2::text::text[], $3::text::integer[]) with ordinality k(kind, biz_id, version, n)
 cross join lateral (
   select from taskledger.event e
    where e.kind = k.kind and e.biz_id = k.biz_id and e.version = k.version
    limit 1) e
 order by k.n
