-- Selects the events that a subscriber has not handled, by key and version.
-- $1 reader; $2 kind, $3 biz_id and $4 version of the event after which the list begins, '', '' and 0 for the first
-- one; $5 maximum number; $6 whether to select the events of the task of $2 and $3 alone.
-- Locks nothing. Index: primary key.
select p.position, p.kind, p.biz_id, p.version, p.state, p.error, p.failures,
       (extract(epoch from p.parked_at) * 1e6)::bigint
  from taskledger.subscriber_parked p
 where p.reader = $1::text and (p.kind, p.biz_id, p.version) > ($2::text, $3::text, $4::integer)
   and (not $6::text::boolean or p.kind = $2::text and p.biz_id = $3::text)
 order by p.kind, p.biz_id, p.version
 limit $5::bigint
