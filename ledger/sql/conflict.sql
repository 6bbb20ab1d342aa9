-- Reads the last event of a task. If its key was archived, that is the last archived event: no event follows it, even
-- if the key was enqueued again.
-- $1 kind, $2 biz_id. Returns version and type in one row, or none. Locks nothing. Indexes: primary keys, backwards.
select coalesce(a.version, h.version), coalesce(a.type, h.type)
  from (values (1)) one
  left join lateral (
    select e.version, e.type::text as type
      from taskledger.event e
     where e.kind = $1::text and e.biz_id = $2::text
     order by e.version desc
     limit 1) h on true
  left join lateral (
    select k.version, k.state::text as type
      from taskledger_internal.archived_keys(array[$1::text], array[$2::text]) k
     where coalesce(h.version, 1) = 1
     limit 1) a on true
 where coalesce(a.version, h.version) is not null
