-- Selects which events of a kind were published at or below a sequence of the stream: the newest mark of the relay with
-- such a sequence. Everything visible in its seen had been published when the mark was written, or, of a withheld kind,
-- everything visible in the seen of its place: of the oldest one of the given shards, if these have several.
-- $1 sequences, $2 kinds, $3 masks of shards with bit n for shard n (array literals), $4 creation of the stream,
-- $5 generation. Marks from before a loss, and marks with messages to republish, do not count.
-- Returns the number in the list (from 1), seen, and when the mark was written, for each sequence with such a
-- mark. Locks nothing. Index: primary key of cursor, backwards.
select s.i::integer,
       coalesce(m.withheld->'places'->coalesce(
           (select (p.part->>'place')::integer
              from json_array_elements(m.withheld->'parts'->s.kind) with ordinality as p(part, n)
             where (p.part->>'mask')::bigint & s.mask <> 0
             order by p.n
             limit 1),
           case when m.withheld->'parts'->s.kind is null then (m.withheld->'kinds'->>s.kind)::integer end
         )->'seen'->>'snapshot', m.seen::text),
       (extract(epoch from m.recorded_at) * 1e6)::bigint
  from unnest($1::text::bigint[], $2::text::text[], $3::text::bigint[]) with ordinality as s(sequence, kind, mask, i)
 cross join lateral (
   select m.seen, m.recorded_at, m.withheld
     from taskledger.relay_mark m
    where m.stream_created = $4::text and m.generation = $5::bigint
      and not m.is_repairing and m.stream_seq <= s.sequence
    order by m.n desc
    limit 1) m
