-- Counts the events that rebase_events.sql would change. Parameters and results are the same. Locks nothing.
-- Index: (position).
select coalesce(max(p.position), 0), count(*) filter (where p.is_foreign)
  from (
    select e.position,
           e.xid <> '3' and (e.xmin::text::bigint <> (e.xid::text::numeric % 4294967296)::bigint
                             or e.xid >= pg_snapshot_xmax(pg_current_snapshot())) as is_foreign
      from taskledger.event e
     where e.position > $1::bigint
     order by e.position
     limit $2::integer) p
