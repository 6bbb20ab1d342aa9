-- Returns the registered readers.
-- $1 reader, or '' for all. Locks nothing. Index: primary key.
select p.reader, p.version, p.shape, to_json(p.tables)::text, p.parks, (extract(epoch from p.since) * 1e6)::bigint,
       coalesce(p.failed_position, 0), coalesce(p.failed_kind, ''), coalesce(p.failed_biz_id, ''),
       coalesce(p.failed_version, 0), p.failures, (extract(epoch from p.failing_since) * 1e6)::bigint,
       (extract(epoch from p.failed_at) * 1e6)::bigint, coalesce(p.failure, ''), coalesce(p.wanted, ''),
       coalesce(p.work, ''), (extract(epoch from p.work_at) * 1e6)::bigint, coalesce(p.work_done, 0),
       coalesce(p.work_total, 0), coalesce(p.work_result::text, '')
  from taskledger.subscriber_state p
 where $1::text = '' or p.reader = $1::text
 order by p.reader
