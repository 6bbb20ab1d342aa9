-- Inserts a business row. $1 biz_id of its task.
insert into effect (biz_id) values ($1)
