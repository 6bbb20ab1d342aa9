-- How many tasks of a kind waited when the projector had counted, among the tasks that one of the $3 events before
-- position $2 made available.
-- $1 kind; the projector's place: everything visible in $4 was counted, and up to position $6 everything
-- visible in $5 ('' for none).
-- Returns the number of events (0: the ledger begins here), their lowest position, and the number of tasks.
-- Locks nothing. Indexes: (position), backwards; then the primary key for each event that made a task of the
-- kind available; the lateral limit keeps the planner on it.
with page as materialized (
  select e.xid, e.position, e.kind, e.biz_id, e.version, e.type
    from taskledger.event e
   where e.position < $2::bigint
   order by e.position desc
   limit $3::integer
)
select count(*), coalesce(min(p.position), 0), count(*) filter (where waits.it)
  from page p
  left join lateral (
    select not taskledger_internal.feed_passed(next.xid, next.position, (select taskledger_internal.feed_floor()),
                                               $4::text::pg_snapshot, nullif($5::text, '')::pg_snapshot,
                                               $6::bigint) as it
      from (select) always
      left join lateral (
        select n.xid, n.position
          from taskledger.event n
         where n.kind = p.kind and n.biz_id = p.biz_id and n.version > p.version
         order by n.version
         limit 1) next on true
     where p.kind = $1::text and p.type in ('enqueued', 'released', 'interrupted')
       and taskledger_internal.feed_passed(p.xid, p.position, (select taskledger_internal.feed_floor()),
                                           $4::text::pg_snapshot, nullif($5::text, '')::pg_snapshot,
                                           $6::bigint)) waits on true
