-- The proof: counts of orders, tasks and coupons, and of each contradiction between them.
-- $1 failures of a task that fails and then succeeds, $2 failures of a task that ends dead.
-- Takes no locks. Scans the demo's tables once each.
select (select count(*) from shop."order") as orders,
       (select count(*) from taskledger.event e where e.kind = 'coupon.send' and e.version = 1) as tasks,
       (select count(*) from taskledger.event e where e.kind = 'coupon.send' and e.type = 'succeeded') as succeeded,
       (select count(*) from shop.coupon) as coupons,
       (select count(*) from shop."order" o where not exists (select from shop.coupon c where c.order_no = o.order_no)
           and not exists (select from taskledger.tasks t
                            where t.kind = 'coupon.send' and t.biz_id = o.order_no and t.state = 'dead')) as lost,
       (select count(*) from (select from shop.coupon c group by c.order_no having count(*) > 1) twice) as doubled,
       (select count(*) from shop.coupon c where not exists (select from shop."order" o where o.order_no = c.order_no))
     + (select count(*) from taskledger.event e where e.kind = 'coupon.send' and e.version = 1
           and not exists (select from shop."order" o where o.order_no = e.biz_id)) as ghosts,
       (select count(*) from taskledger.event) as events,
       (select count(*) from taskledger.tasks t
         where t.kind = 'coupon.send' and t.state = 'succeeded' and t.failures = $1::integer) as retried,
       (select count(*) from taskledger.tasks t
         where t.kind = 'coupon.send' and t.state = 'dead' and t.failures = $2::integer) as dead
