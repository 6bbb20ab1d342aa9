-- Reads the version of a task as of a place: the highest version committed before it. 0: the task did not exist.
-- Versions commit in their order, so it halves the versions: 19 reads for 500,000 events.
-- $1 kind, $2 biz_id; $3 seen, $4 until, $5 after_position of the place. Locks nothing. Index: primary key, backwards.
with recursive bounds(low, high) as (
  select 0, (select h.version
               from taskledger.event h
              where h.kind = $1::text and h.biz_id = $2::text
              order by h.version desc
              limit 1)
   union all
  select case when coalesce(m.passed, true) then b.middle else b.low end,
         case when coalesce(m.passed, true) then b.high else m.version - 1 end
    from (select low, high, (low + high + 1) / 2 as middle from bounds) b
    left join lateral (
      select e.version, -- the middle, or a lower one in a forged history with gaps
             taskledger_internal.feed_passed(e.xid, e.position, (select taskledger_internal.feed_floor()),
                                             $3::text::pg_snapshot, $4::text::pg_snapshot, $5::bigint) as passed
        from taskledger.event e
       where e.kind = $1::text and e.biz_id = $2::text and e.version <= b.middle
       order by e.version desc
       limit 1) m on true
   where b.low < b.high
)
select coalesce((select e.version
                   from taskledger.event e
                  where e.kind = $1::text and e.biz_id = $2::text and e.version <= b.low
                  order by e.version desc
                  limit 1), 0)
  from bounds b
 where b.low >= b.high
