-- Selects the events on record that do not fold, by key and version.
-- $1 maximum number. Locks nothing. Index: primary key.
select i.kind, i.biz_id, i.version, i.reason, (extract(epoch from i.found_at) * 1e6)::bigint
  from taskledger.illegal_event i
 order by i.kind, i.biz_id, i.version
 limit $1::integer
