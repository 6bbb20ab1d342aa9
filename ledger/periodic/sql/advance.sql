-- Stores the position of a schedule after its due firings.
-- $1 name, $2 next firing or null, $3 the last firing that became a task, with $4 kind and $5 biz_id of that task
-- (each null if there was none), $6 how many firings were passed over.
-- Locks that row. Index: primary key.
update taskledger.schedule s
   set next_at = $2::text::timestamptz,
       last_at = coalesce($3::text::timestamptz, s.last_at),
       last_kind = coalesce($4::text, s.last_kind),
       last_biz_id = coalesce($5::text, s.last_biz_id),
       passed = s.passed + $6::bigint,
       passed_at = case when $6::bigint > 0 then clock_timestamp() else s.passed_at end
 where s.name = $1::text
