-- Which events were published at or below a sequence of the stream: the newest row of the relay's cursor whose
-- mark has such a sequence. Everything visible in its seen had been published when the row was written.
-- $1 sequences (text array literal), $2 creation of the stream, $3 generation. Rows from before a loss, and rows
-- with messages to republish, do not count.
-- Returns the number in the list (from 1), seen, and when the row was written, for each sequence with such a
-- row. Locks nothing. Index: primary key, backwards.
select s.i::integer, c.seen::text, (extract(epoch from c.recorded_at) * 1e6)::bigint
  from unnest($1::text::bigint[]) with ordinality as s(sequence, i)
 cross join lateral (
   select c.seen, c.recorded_at
     from taskledger.cursor c
    where c.reader = 'relay' and c.mark->>'stream_created' = $2::text and (c.mark->>'generation')::bigint = $3::bigint
      and c.mark->'owed' is null and (c.mark->>'stream_seq')::bigint <= s.sequence
    order by c.n desc
    limit 1) c
