-- The positions between which the first events of the tasks of a range of minutes are, whatever the clocks did.
-- $1 time from which minutes begin and $2 time before which they do, each '' for all; $3 maximum number of kinds and
-- minutes to read in the range, and a tenth of those after it. Returns the position after which and the one before
-- which, of a larger part of the ledger if the range has more.
-- Locks nothing. Indexes: kind_stats_minute; kind_stats_position, alone.
with inside as materialized (
  select s.first_position, s.last_position
    from taskledger.kind_stats s
   where s.minute >= coalesce(nullif($1::text, ''), '-infinity')::timestamptz
     and s.minute < coalesce(nullif($2::text, ''), 'infinity')::timestamptz
   order by s.minute
   limit $3::integer + 1
), latest as materialized (
  select s.last_position, s.minute
    from taskledger.kind_stats s
   where s.last_position is not null
   order by s.last_position desc
   limit 10 * $3::integer
)
select case when i.n <= $3::integer then coalesce(i.first_position - 1, 0) else 0 end,
       case when i.n <= $3::integer then coalesce(i.last_position + 1, 0)
            when $2::text = '' then 9223372036854775807
            else 1 + coalesce(
              (select max(l.last_position) from latest l where l.minute < nullif($2::text, '')::timestamptz),
              (select min(l.last_position) from latest l)) end
  from (
   select count(*) as n, min(s.first_position) as first_position, max(s.last_position) as last_position
     from inside s) i
