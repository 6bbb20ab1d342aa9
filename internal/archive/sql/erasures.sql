-- The tasks that some acts have erased.
-- $1 ids of acts (array literal). Locks nothing. Index: erasure_id.
select x.id::text, x.kind, x.biz_id, x.until, (extract(epoch from x.erased_at) * 1e6)::bigint, x.actor, x.reason
  from taskledger.erasures x
 where x.id = any ($1::text::uuid[])
 order by x.id, x.kind, x.biz_id
