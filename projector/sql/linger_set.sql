-- Lists unfinished tasks as lingering.
-- $1 kinds, $2 biz_ids: array literals of one length, in key order. Locks the rows; the transaction is the only writer
-- (see tasks_before.sql). Index: primary key.
update taskledger.task t
   set lingering = true
  from unnest($1::text::text[], $2::text::text[]) as k(kind, biz_id)
 where t.kind = k.kind and t.biz_id = k.biz_id and t.state in ('available', 'running') and not t.lingering
