-- Returns how many orders placed before $1 (timestamp) wait: their task has neither succeeded nor died.
-- Takes no locks. Needs event's primary key.
select count(*)
  from shop."order" o
 where o.placed_at < $1::text::timestamptz
   and not exists (select from taskledger.event e
                    where e.kind = 'coupon.send' and e.biz_id = o.order_no and e.type in ('succeeded', 'buried'))
