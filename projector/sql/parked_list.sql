-- Selects the events that a projection has not applied, by key and version.
-- $1 projection, $2 maximum number, $3 kind and $4 biz_id, or null for those of all tasks. Locks nothing.
-- Index: primary key.
select p.position, p.kind, p.biz_id, p.version, p.state, p.error, p.failures,
       (extract(epoch from p.parked_at) * 1e6)::bigint
  from taskledger.projection_parked p
 where p.projection = $1::text and ($3::text is null or p.kind = $3::text and p.biz_id = $4::text)
 order by p.kind, p.biz_id, p.version
 limit $2::integer
