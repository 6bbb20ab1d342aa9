-- Orders placed before $1 whose task has neither succeeded nor died.
select count(*)
  from shop."order" o
 where o.placed_at < $1::text::timestamptz
   and not exists (select from taskledger.event e
                    where e.kind = 'coupon.send' and e.biz_id = o.order_no and e.type in ('succeeded', 'buried'))
