-- Counts the events that do not fold, and selects when the first was found, and the last one's reason. At the greatest
-- count the first and the last are unknown: there is no time, and the reason is any one's.
-- $1 greatest count. Locks nothing. Reads at most $1 rows of a table that is empty unless a role with INSERT has
-- forged events.
select count(*)::integer,
       case when count(*) < $1::integer then (extract(epoch from min(i.found_at)) * 1e6)::bigint end,
       coalesce((array_agg(i.reason order by i.found_at desc))[1], '')
  from (select l.found_at, l.reason from taskledger.illegal_event l limit $1::integer) i
