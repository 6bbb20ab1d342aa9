-- Gives events of another database a transaction id that is older than every window: 3, the first one there is. The
-- rows that a transaction of this database wrote have its id as xmin, also in a physical copy, and do not change.
-- $1 position to begin after, $2 number of events to read. Returns the last position read (0: no events) and the number
-- of changed events. Locks the changed rows. Index: (position).
with page as materialized (
  select e.position,
         e.xid <> '3' and (e.xmin::text::bigint <> (e.xid::text::numeric % 4294967296)::bigint
                           or e.xid >= pg_snapshot_xmax(pg_current_snapshot())) as is_foreign
    from taskledger.event e
   where e.position > $1::bigint
   order by e.position
   limit $2::integer
), changed as (
  update taskledger.event e
     set xid = '3'
    from page p
   where e.position = p.position and p.is_foreign
  returning e.position
)
select coalesce((select max(p.position) from page p), 0), (select count(*) from changed)
