-- Thins the cursor rows of a reader. Of rows older than 5 minutes it keeps the last of each second, of rows older than
-- an hour the last of each minute, and of rows older than $3 hours none. The newest row always stays, and 100 before
-- it whatever their age, because the clock may have jumped.
-- Returns the n above which to begin the next time.
-- $1 reader, $2 n above which to begin (lower rows are thinned already), $3 hours.
-- Deletes rows that no other transaction locks; index: primary key, from $2 on.
with old as materialized (
  select c.n, c.recorded_at,
         lead(c.recorded_at) over (order by c.n) as next_at
    from taskledger.cursor c
   where c.reader = $1::text and c.n > $2::bigint
     and c.recorded_at < clock_timestamp() - interval '5 minutes'
), gone as (
  delete from taskledger.cursor c
   using old o
   where c.reader = $1::text and c.n = o.n
     and o.next_at is not null
     and (o.recorded_at < clock_timestamp() - make_interval(hours => $3::integer)
          and c.n < (select max(m.n) from taskledger.cursor m where m.reader = $1::text) - 100
       or date_trunc('second', o.recorded_at) = date_trunc('second', o.next_at)
       or o.recorded_at < clock_timestamp() - interval '1 hour'
          and date_trunc('minute', o.recorded_at) = date_trunc('minute', o.next_at))
)
select coalesce(max(o.n) - 1, $2::bigint) from old o
