-- Selects which events have a next event of their task that was delivered.
-- $1 kinds, $2 biz_ids, $3 versions (text array literals). Events count as delivered if they are visible in snapshot
-- $4, or in $5 with a position up to $6 ('' for no snapshot).
-- Returns their numbers in the lists, from 1. Locks nothing. Index: primary key.
select o.i::integer
  from unnest($1::text::text[], $2::text::text[], $3::text::integer[]) with ordinality as o(kind, biz_id, version, i)
 cross join lateral (
   select e.xid, e.position
     from taskledger.event e
    where e.kind = o.kind and e.biz_id = o.biz_id and e.version = o.version + 1
    limit 1) l
 where taskledger.feed_passed(l.xid, l.position, (select taskledger.feed_floor()), $4::text::pg_snapshot,
                              nullif($5::text, '')::pg_snapshot, $6::bigint)
