-- Reads the rows of the tasks that a page of events changes.
-- $1 kinds, $2 biz_ids: text array literals of one length. Returns the index of the key in them, from 0, and
-- the row with its address. It returns nothing for a new task.
-- Locks nothing: the transaction has appended the projector's cursor row, which makes it the only writer.
-- Index: primary key. The lateral limit keeps the planner on it, whatever the statistics are.
select (k.i - 1)::integer, t.ctid::text, t.state::text, t.version, t.attempt, t.failures, coalesce(t.error, ''),
       (date_part('epoch', t.updated_at) * 1e6)::bigint
  from unnest($1::text::text[], $2::text::text[]) with ordinality as k(kind, biz_id, i)
 cross join lateral (
   select c.ctid, c.state, c.version, c.attempt, c.failures, c.error, c.updated_at
     from taskledger.task c
    where c.kind = k.kind and c.biz_id = k.biz_id
    limit 1) t
