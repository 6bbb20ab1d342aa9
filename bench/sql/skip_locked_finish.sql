-- Marks tasks as done. $1 their ids. Locks them. Needs the primary key.
update task set status = 'done', finished_at = now() where id = any ($1::bigint[])
