-- Lists unfinished tasks as lingering.
-- $1 kinds, $2 biz_ids, $3 positions of the events that made them available: array literals of one length, in key
-- order.
-- Locks the rows; the transaction is the only writer (see tasks_before.sql). Index: primary key.
update taskledger.task t
   set lingering = k.position
  from unnest($1::text::text[], $2::text::text[], $3::text::bigint[]) as k(kind, biz_id, position)
 where t.kind = k.kind and t.biz_id = k.biz_id and t.state in ('available', 'running')
   and t.lingering is distinct from k.position
