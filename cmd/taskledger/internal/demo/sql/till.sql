-- The proof of the periodic task: its firings, the counted firings, the number of counts, and the seconds from the
-- first firing to the last, which must equal the firings. No parameters. Takes no locks.
select count(*), count(distinct c.firing), (select count(*) from shop.till),
       coalesce(extract(epoch from max(e.firing::timestamptz) - min(e.firing::timestamptz))::bigint + 1, 0)
  from (select split_part(e.biz_id, '@', 2) as firing, e.biz_id
          from taskledger.event e
         where e.kind = 'till.count' and e.version = 1) e
  left join shop.till c on c.firing = e.biz_id
