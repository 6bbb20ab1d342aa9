-- A business row. $1 which task it belongs to.
insert into effect (biz_id) values ($1)
