-- The next batches, and whether their arrays have one dimension from 1: texts of positions and salts are separated by
-- commas; hashes and salts are in hexadecimal.
-- $1 batch to begin with, $2 number of batches. Locks nothing. Index: primary key.
select s.batch, s.first_leaf, s.first_node, s.top, s.is_late,
       coalesce((array_ndims(s.positions), array_ndims(s.salts), array_lower(s.positions, 1), array_lower(s.salts, 1))
                = (1, 1, 1, 1), false),
       array_to_string(s.positions, ',', '-1'),
       encode(s.leaves, 'hex'), encode(s.nodes, 'hex'),
       (select coalesce(string_agg(coalesce(encode(x.salt, 'hex'), ''), ',' order by x.n), '')
          from unnest(s.salts) with ordinality x(salt, n))
  from taskledger.seal s
 where s.batch >= $1::bigint
 order by s.batch
 limit $2::bigint
