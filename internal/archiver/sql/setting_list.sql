-- How long serve keeps the finished tasks of kinds: kind, microseconds (-1: forever), actor; by kind.
-- Locks nothing. Index: primary key.
select s.kind, coalesce((date_part('epoch', s.keep) * 1e6)::bigint, -1), s.actor
  from taskledger_internal.archive_settings s
 order by s.kind
