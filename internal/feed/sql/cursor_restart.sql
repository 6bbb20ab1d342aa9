-- Appends a cursor row at the edge before the first event, after the newest row of a reader, which the caller holds.
-- Its n is above every row that the reader has ever had, even removed rows: a process that stopped long ago finds no
-- row that it could take for its own.
-- $1 reader, $2 n of the newest row; the edge: $3 seen, $4 seen_top, $5 seen_bound; $6 mark (JSON text or null).
-- Returns n of the new row. Locks it. Index: primary key.
insert into taskledger.cursor (reader, n, seen, seen_top, seen_bound, origin, mark)
values ($1::text, greatest($2::bigint + 1, (extract(epoch from clock_timestamp()) * 1e6)::bigint),
        $3::text::pg_snapshot, $4::bigint, $5::text::xid8, taskledger_internal.origin(), $6::text::json)
returning n
