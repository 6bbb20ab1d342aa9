-- Records the number of coupons. $1 slot.
insert into shop.till (slot, coupons) select $1::text, count(*) from shop.coupon
