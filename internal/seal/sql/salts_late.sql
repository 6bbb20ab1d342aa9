-- The late batches of the seal that contain events at some positions, as salts.sql returns batches. Each position is a
-- look-up, except those above all sealed ones.
-- $1 positions (array literal). Locks nothing. Indexes: primary key, seal_late.
select s.first_leaf, array_to_string(s.positions, ',', '-1'),
       (select coalesce(string_agg(coalesce(encode(x.salt, 'hex'), ''), ',' order by x.n), '')
          from unnest(s.salts) with ordinality x(salt, n))
  from taskledger.seal s
 where s.is_late
   and s.positions && array(
         select p
           from unnest($1::text::bigint[]) p
          where p <= (select n.top from taskledger.seal n order by n.batch desc limit 1))
