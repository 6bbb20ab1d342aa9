-- The batches of the seal that can contain events at some positions, which are close to each other: the first leaf, and
-- the array literals of positions and salts.
-- $1 positions in order (array literal). Locks nothing. Indexes: seal_top, seal_late, primary key of seal_rest.
select s.first_leaf, s.positions::text, s.salts::text
  from (select $1::text::bigint[] as positions) p
 cross join lateral (
   (select b.first_leaf, b.positions, b.salts
      from taskledger.seal b
     where not b.is_late and b.top >= p.positions[1]
       and b.top <= (select coalesce(min(n.top), 9223372036854775807)
                       from taskledger.seal n
                      where not n.is_late and n.top >= p.positions[cardinality(p.positions)]))
    union all
   (select l.first_leaf, l.positions, l.salts
      from taskledger.seal l
     where l.is_late and l.positions && p.positions)
    union all
   (select r.leaf, array[r.position], array[r.salt]
      from taskledger.seal_rest r
     where r.position >= p.positions[1] and r.position <= p.positions[cardinality(p.positions)])) s
