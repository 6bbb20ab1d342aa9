-- Records the end of a run.
-- $1 run, $2 kinds that were named (array literal; null: all others), $3 how many tasks it has removed, $4 how many
-- tasks readers of the feed hold, $5 one of these readers or null, $6 the earliest end of these tasks in microseconds
-- since 1970 or null. Locks the row. Index: primary key.
select taskledger_internal.end_archive($1::bigint::integer, $2::text::text[], $3::bigint, $4::bigint, $5::text,
                                       timestamptz 'epoch' + $6::bigint * interval '1 microsecond')
