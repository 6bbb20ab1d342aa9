-- The proof of the periodic task: its slots, those that were counted, the number of counts, and the
-- seconds from the first slot to the last, which must equal the slots. No parameters. Takes no locks.
select count(*), count(distinct c.slot), (select count(*) from shop.till),
       coalesce(extract(epoch from max(e.slot::timestamptz) - min(e.slot::timestamptz))::bigint + 1, 0)
  from (select split_part(e.biz_id, '@', 2) as slot, e.biz_id
          from taskledger.event e
         where e.kind = 'till.count' and e.version = 1) e
  left join shop.till c on c.slot = e.biz_id
