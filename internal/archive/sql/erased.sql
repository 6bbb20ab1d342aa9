-- Up to which positions the events of some tasks are erased, 0 for none, in the order of the tasks.
-- $1 kinds and $2 biz_ids (array literals). Locks nothing. Index: see taskledger_internal.erased_until.
select taskledger_internal.erased_until(k.kind, k.biz_id)
  from unnest($1::text::text[], $2::text::text[]) with ordinality k(kind, biz_id, n)
 order by k.n
