-- Records the number of coupons. $1 firing.
insert into shop.till (firing, coupons) select $1::text, count(*) from shop.coupon
