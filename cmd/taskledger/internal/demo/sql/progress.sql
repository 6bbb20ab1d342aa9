-- Returns the number of orders and of coupons, for the view. No parameters. Takes no locks.
select (select count(*) from shop."order"), (select count(*) from shop.coupon)
