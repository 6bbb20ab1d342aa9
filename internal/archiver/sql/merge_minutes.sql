-- Merges the statistics of one hour's minutes, whose tasks may have been archived.
-- $1 moment after which the minutes are, in microseconds since 1970, or null for all.
-- Returns the hour's last minute, in microseconds since 1970, null if no hour is left.
-- Locks rows, passing over locked ones. Index: kind_stats_minute.
select (date_part('epoch', taskledger_internal.merge_minutes(
         timestamptz 'epoch' + $1::bigint * interval '1 microsecond')) * 1e6)::bigint
