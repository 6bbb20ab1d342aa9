-- Selects the tasks of kinds and priorities that became available by the next events after the place of the list.
-- $1 seen, $2 seen_top, $3 seen_bound of the place; $4 position to continue after; $5 maximum number of events;
-- $6 kinds, $7 priorities, $8 positions up to which tasks without a partition are left out: array literals of one
-- length.
-- Returns how many events were read and the position of the last one, and in each row kind, priority, partition, biz_id
-- and position of a task, ordered by kind and position. Without tasks, one row with '' as kind.
-- Locks nothing. Indexes: as taskledger_internal.feed_page.
with page as materialized (
  select e.position, e.priority, e.partition, e.kind, e.biz_id, e.type
    from taskledger_internal.feed_page($1::text::pg_snapshot, $2::bigint, $3::text::xid8, pg_current_snapshot(),
                                       9223372036854775807, $4::bigint, $5::integer) e
), wanted as materialized (
  select w.kind, w.priority, w.after
    from unnest($6::text::text[], $7::text::smallint[], $8::text::bigint[]) as w(kind, priority, after)
)
select reached.events, reached.position, coalesce(p.kind, ''), coalesce(p.priority, 0), coalesce(p.partition, ''),
       coalesce(p.biz_id, ''), coalesce(p.position, 0)
  from (select count(*) as events, coalesce(max(r.position), 0) as position from page r) reached
  left join (page p
        join wanted w on w.kind = p.kind and w.priority = coalesce(nullif(p.priority, 0), 3)
                         and (p.position > w.after or p.partition is not null))
    on p.type in ('enqueued', 'released', 'interrupted')
 order by 3, 7
