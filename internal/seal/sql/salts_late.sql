-- The late batches of the seal that contain events at some positions, as salts.sql returns batches, and these events of
-- rows that were removed after salts.sql was executed. A position takes two look-ups, one above all sealed ones none.
-- $1 positions (array literal). Locks nothing. Indexes: primary key, seal_late, primary key of seal_rest.
select s.first_leaf, array_to_string(s.positions, ',', '-1'),
       (select coalesce(string_agg(coalesce(encode(x.salt, 'hex'), ''), ',' order by x.n), '')
          from unnest(s.salts) with ordinality x(salt, n))
  from (select array(
          select p
            from unnest($1::text::bigint[]) p
           where p <= (select n.top from taskledger.seal n order by n.batch desc limit 1)) as positions offset 0) p
 cross join lateral (
   (select l.first_leaf, l.positions, l.salts
      from taskledger.seal l
     where l.is_late and l.positions && p.positions)
    union all
   (select r.leaf, array[r.position], array[r.salt]
      from taskledger.seal_rest r
     where r.position = any (p.positions))) s
