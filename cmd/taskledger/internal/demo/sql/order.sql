-- Inserts an order. $1 order number, $2 customer.
insert into shop."order" (order_no, customer) values ($1::text, $2::text)
