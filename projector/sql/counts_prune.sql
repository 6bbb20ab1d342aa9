-- Removes the 256 rows of a running total below row n, which stays.
-- $1 kind, $2 state, $3 n.
-- Locks the rows, which no other transaction writes. Index: primary key, from where live rows start.
delete from taskledger.task_count c
 where c.kind = $1::text and c.state = $2::text::taskledger.task_state
   and c.n >= $3::bigint - 256 and c.n < $3::bigint
