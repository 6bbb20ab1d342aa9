-- Reads limits, with the projector's count of waiting tasks.
-- $1 the kind after which the list begins, '' for the first one; $2 most limits.
-- Locks nothing. Index: primary key of kind_limit; reads one index row per kind for the count.
select o.kind, o.max_waiting, o.policy, o.retry_after_ms, o.waiting
  from taskledger.overload o
 where o.kind > $1::text
 order by o.kind
 limit $2::bigint
