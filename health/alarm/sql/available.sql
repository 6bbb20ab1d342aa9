-- How many tasks of a kind are available, as the projection has it. $1 kind.
-- Locks nothing. Index: primary key, backwards.
select c.value from taskledger.task_count c
 where c.kind = $1::text and c.state = 'available'
 order by c.n desc
 limit 1
