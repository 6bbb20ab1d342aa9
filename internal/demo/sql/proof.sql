-- The proof: what was ordered against what was done.
select (select count(*) from shop."order") as orders,
       (select count(*) from taskledger.event e where e.kind = 'coupon.send' and e.version = 1) as tasks,
       (select count(*) from taskledger.event e where e.kind = 'coupon.send' and e.type = 'succeeded') as succeeded,
       (select count(*) from shop.coupon) as coupons,
       (select count(*) from shop."order" o where not exists (select from shop.coupon c where c.order_no = o.order_no)) as lost,
       (select count(*) from (select from shop.coupon c group by c.order_no having count(*) > 1) twice) as doubled,
       (select count(*) from shop.coupon c where not exists (select from shop."order" o where o.order_no = c.order_no))
     + (select count(*) from taskledger.event e where e.kind = 'coupon.send' and e.version = 1
           and not exists (select from shop."order" o where o.order_no = e.biz_id)) as ghosts,
       (select count(*) from taskledger.event) as events
