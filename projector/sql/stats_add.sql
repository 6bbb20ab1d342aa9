-- Appends the statistics of a page, by minute and by hour.
-- $1 kinds, $2 minutes (microseconds since 1970), $3 enqueued, $4 started, $5 succeeded, $6 failed, $7 dead, $8
-- cancelled, $9 and $10 histograms of waiting and running, $11 lowest and $12 highest position of the tasks enqueued:
-- array literals. The last four may be shorter (null), and 0 is no position.
-- Locks no row that another transaction needs. Index: none.
with r as materialized (
  select r.kind, 'epoch'::timestamptz + r.minute * interval '1 microsecond' as minute, r.enqueued, r.started,
         r.succeeded, r.failed, r.dead, r.cancelled, r.waiting::bigint[] as waiting, r.running::bigint[] as running,
         nullif(r.first_position, 0) as first_position, nullif(r.last_position, 0) as last_position
    from unnest($1::text::text[], $2::text::bigint[], $3::text::bigint[], $4::text::bigint[], $5::text::bigint[],
                $6::text::bigint[], $7::text::bigint[], $8::text::bigint[], $9::text::text[], $10::text::text[],
                $11::text::bigint[], $12::text::bigint[])
         as r(kind, minute, enqueued, started, succeeded, failed, dead, cancelled, waiting, running, first_position,
              last_position)
), by_hour as (
  insert into taskledger.kind_hour (hour, kind, enqueued, started, succeeded, failed, dead, cancelled)
  select date_bin('1 hour', r.minute, 'epoch'), r.kind, sum(r.enqueued), sum(r.started), sum(r.succeeded),
         sum(r.failed), sum(r.dead), sum(r.cancelled)
    from r
   group by 1, 2
)
insert into taskledger.kind_stats
       (kind, minute, enqueued, started, succeeded, failed, dead, cancelled, waiting, running, first_position,
        last_position)
select r.kind, r.minute, r.enqueued, r.started, r.succeeded, r.failed, r.dead, r.cancelled, r.waiting, r.running,
       r.first_position, r.last_position
  from r
