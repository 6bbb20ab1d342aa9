-- Adds moments: the end of a time without commits, unless another moment is less than 1.1 s older, and the edge of the
-- window just opened, unless another moment is less than 1 s older.
-- $1 time in microseconds since 1970 (0: no such moment), $2 snapshot, $3 top, $4 bound of the first; $5 to $8 the
-- same for the second. Returns whether a moment exists at the second time or later, or was added.
-- Its commit does not wait for the disk: a crash that undoes a moment makes the past less exact, not wrong.
-- Locks nothing. Index: primary key of moment.
with added as (
  insert into taskledger.moment (at, snapshot, top, bound)
  select v.at, v.snapshot::pg_snapshot, v.top, v.bound::xid8
    from (
      select timestamptz 'epoch' + $1::bigint * interval '1 microsecond' as at, $2::text as snapshot,
             $3::bigint as top, $4::text as bound, interval '1.1 seconds' as gap
       where $1::bigint > 0
      union all
      select timestamptz 'epoch' + $5::bigint * interval '1 microsecond', $6::text, $7::bigint, $8::text,
             interval '1 second') v
   where not exists (
           select from taskledger.moments m where m.at > v.at - v.gap and m.at <= v.at)
     and set_config('synchronous_commit', 'off', true) is not null
      on conflict do nothing
  returning at
)
select exists (select from added a where a.at = timestamptz 'epoch' + $5::bigint * interval '1 microsecond')
    or exists (select from taskledger.moments m
                where m.at >= timestamptz 'epoch' + $5::bigint * interval '1 microsecond')
