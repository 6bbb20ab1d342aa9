-- Returns the registered projections by name.
-- $1 name, or '' for all. Locks nothing. Index: primary key.
select p.name, p.version, p.shape, to_json(p.tables)::text, p.parks, (extract(epoch from p.since) * 1e6)::bigint,
       coalesce(p.failed_position, 0), coalesce(p.failed_kind, ''), coalesce(p.failed_biz_id, ''),
       coalesce(p.failed_version, 0), p.failures, (extract(epoch from p.failing_since) * 1e6)::bigint,
       (extract(epoch from p.failed_at) * 1e6)::bigint, coalesce(p.failure, ''), coalesce(p.wanted, ''),
       coalesce(p.work, ''), (extract(epoch from p.work_at) * 1e6)::bigint, coalesce(p.work_done, 0),
       coalesce(p.work_total, 0), coalesce(p.work_result::text, '')
  from taskledger.projection p
 where $1::text = '' or p.name = $1::text
 order by p.name
