-- Pages and tallies of the feed are read by index, up to a number of rows that the planner does not
-- know. The longer the history, the dearer they seem to it, until PostgreSQL compiles them at each
-- call: with 10,000,000 events that took longer than all the rest.

-- +goose Up
alter function taskledger.feed_page(pg_snapshot, bigint, xid8, pg_snapshot, bigint, bigint, integer) set jit = off;
alter function taskledger.feed_tally(pg_snapshot, pg_snapshot, integer, xid8, bigint) set jit = off;
