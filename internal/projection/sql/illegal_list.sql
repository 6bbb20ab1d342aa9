-- Selects the events on record that do not fold, by key and version.
-- $1 kind, $2 biz_id and $3 version of the event after which the list begins, '', '' and 0 for the first one; $4
-- maximum number.
-- Locks nothing. Index: primary key.
select i.kind, i.biz_id, i.version, i.reason, (extract(epoch from i.found_at) * 1e6)::bigint
  from taskledger.illegal_event i
 where (i.kind, i.biz_id, i.version) > ($1::text, $2::text, $3::integer)
 order by i.kind, i.biz_id, i.version
 limit $4::bigint
