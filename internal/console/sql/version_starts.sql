-- Selects the versions of programs whose first worker on record began since a moment, newest first.
-- $1 microseconds since 1970, $2 most versions.
-- Returns the version as the worker has written it, JSON that may be of any type or cut off, and when it began.
-- Locks nothing. Reads the whole small table.
select v.version, (extract(epoch from min(v.since)) * 1e6)::bigint as begun
  from (
    select left((w.detail->'version')::text, 1202) as version, w.since
      from taskledger.workers w
    offset 0) v
 where v.version is not null
 group by v.version
having min(v.since) >= 'epoch'::timestamptz + $1::bigint * interval '1 microsecond'
 order by begun desc
 limit $2::bigint
