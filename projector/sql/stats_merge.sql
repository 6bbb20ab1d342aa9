-- Merges the rows of each kind and minute, of minutes that have passed.
-- $1 first minute and $2 minute before which to end, in microseconds since 1970.
-- Locks the rows, which no other transaction writes. Indexes: kind_stats_minute, kind_hour_hour.
select taskledger_internal.merge_kind_stats('epoch'::timestamptz + $1::bigint * interval '1 microsecond',
                                            'epoch'::timestamptz + $2::bigint * interval '1 microsecond')::text
