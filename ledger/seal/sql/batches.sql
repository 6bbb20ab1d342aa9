-- The next batches: texts of positions and salts are separated by commas; hashes and salts are in hexadecimal.
-- $1 batch to continue after, $2 number of batches. Locks nothing. Index: primary key.
select s.batch, s.first_leaf, s.first_node, s.top, s.is_late, array_to_string(s.positions, ',', '-1'),
       encode(s.leaves, 'hex'), encode(s.nodes, 'hex'),
       (select coalesce(string_agg(coalesce(encode(x.salt, 'hex'), ''), ',' order by x.n), '')
          from unnest(s.salts) with ordinality x(salt, n))
  from taskledger.seal s
 where s.batch > $1::bigint
 order by s.batch
 limit $2::bigint
