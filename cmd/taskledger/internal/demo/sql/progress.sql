-- How far the shop is, for the live table. Answers orders, coupons.
select (select count(*) from shop."order"), (select count(*) from shop.coupon)
