-- Appends the statistics of a page.
-- $1 kinds, $2 minutes (microseconds since 1970), $3 enqueued, $4 started, $5 succeeded, $6 failed, $7 dead, $8
-- cancelled, $9 and $10 histograms of waiting and running, $11 lowest and $12 highest position of the tasks enqueued:
-- array literals. The last four may be shorter (null), and 0 is no position.
-- Locks no row that another transaction needs. Index: none.
insert into taskledger.kind_stats
       (kind, minute, enqueued, started, succeeded, failed, dead, cancelled, waiting, running, first_position,
        last_position)
select r.kind, 'epoch'::timestamptz + r.minute * interval '1 microsecond', r.enqueued, r.started, r.succeeded, r.failed,
       r.dead, r.cancelled, r.waiting::bigint[], r.running::bigint[], nullif(r.first_position, 0),
       nullif(r.last_position, 0)
  from unnest($1::text::text[], $2::text::bigint[], $3::text::bigint[], $4::text::bigint[], $5::text::bigint[],
              $6::text::bigint[], $7::text::bigint[], $8::text::bigint[], $9::text::text[], $10::text::text[],
              $11::text::bigint[], $12::text::bigint[])
       as r(kind, minute, enqueued, started, succeeded, failed, dead, cancelled, waiting, running, first_position,
            last_position)
