-- The positions between which the first events of the tasks of a range of minutes are, whatever the clocks did.
-- $1 and $2: the range begins at the minute of $1 and ends before $2, each '' for no bound. $3 limit of the kinds and
-- minutes that are read in the range. Of the newest ones, ten times as many are read. Returns a position before these
-- events and one after them. They enclose a larger part of the ledger if the range has more minutes. It
-- begins at a whole hour where the archive may have merged minutes.
-- Locks nothing. Indexes: kind_stats_minute; kind_stats_position, alone.
with inside as materialized (
  select s.first_position, s.last_position
    from taskledger.kind_stats s
   where s.minute >= coalesce((
           select case when f.at < taskledger_internal.archived_before() then date_bin('1 hour', f.at, 'epoch')
                       else f.at end
             from (select nullif($1::text, '')::timestamptz as at) f), '-infinity')
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
