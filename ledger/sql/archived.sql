-- The archived tasks among some keys.
-- $1 kinds, $2 biz_ids: text array literals of one length.
-- Returns the number of each in the arrays, from 1, its last version and state, when it was archived, in microseconds
-- since 1970, the file with its events, '' for none, and the position up to which they are erased.
-- Locks nothing. Indexes: primary keys.
select a.n, a.version::bigint, a.state::text, (date_part('epoch', a.archived_at) * 1e6)::bigint, coalesce(a.file, ''),
       a.erased_until
  from taskledger_internal.archived_keys($1::text::text[], $2::text::text[]) a
