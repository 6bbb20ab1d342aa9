-- Inserts a coupon. $1 order number, $2 worker, $3 attempt.
insert into shop.coupon (order_no, worker, attempt) values ($1::text, $2::text, $3::integer)
