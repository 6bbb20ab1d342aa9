-- The leaves of the events at some positions: position, leaf, and salt or digest in hexadecimal.
-- $1 positions (array literal). Locks nothing. Indexes: as taskledger_internal.sealed_leaf, primary key of seal.
select p.position, l.leaf,
       coalesce((select encode(s.salts[l.place], 'hex') from taskledger.seal s where s.batch = l.batch), '')
  from unnest($1::text::bigint[]) p(position)
 cross join lateral taskledger_internal.sealed_leaf(p.position) l
