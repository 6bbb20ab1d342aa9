-- The batches of the seal that can contain events at some positions, which are close to each other, without late ones:
-- the first leaf, the positions, and the salts or digests in hexadecimal, both separated by commas.
-- $1 positions in order (array literal). Locks nothing. Indexes: seal_top, primary key of seal_rest.
select s.first_leaf, array_to_string(s.positions, ',', '-1'),
       (select coalesce(string_agg(coalesce(encode(x.salt, 'hex'), ''), ',' order by x.n), '')
          from unnest(s.salts) with ordinality x(salt, n))
  from (select $1::text::bigint[] as positions) p
 cross join lateral (
   (select b.first_leaf, b.positions, b.salts
      from taskledger.seal b
     where not b.is_late and b.top >= p.positions[1]
       and b.top <= (select coalesce(min(n.top), 9223372036854775807)
                       from taskledger.seal n
                      where not n.is_late and n.top >= p.positions[cardinality(p.positions)]))
    union all
   (select r.leaf, array[r.position], array[r.salt]
      from taskledger.seal_rest r
     where r.position >= p.positions[1] and r.position <= p.positions[cardinality(p.positions)])) s
