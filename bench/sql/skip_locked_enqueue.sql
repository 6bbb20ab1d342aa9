-- Inserts a task. $1 kind, $2 biz_id, $3 args (JSON text).
insert into task (kind, biz_id, args) values ($1, $2, $3::text::json)
