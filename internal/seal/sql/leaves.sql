-- The leaves of the events at some positions: position, leaf, and salt or digest in hexadecimal.
-- $1 positions (array literal). Locks nothing. Indexes: as taskledger_internal.sealed_leaf, primary keys of
-- seal and seal_rest.
select p.position, l.leaf,
       coalesce((select encode(s.salts[l.place], 'hex') from taskledger.seal s where s.batch = l.batch),
                (select encode(r.salt, 'hex') from taskledger.seal_rest r where r.position = p.position), '')
  from unnest($1::text::bigint[]) p(position)
 cross join lateral taskledger_internal.sealed_leaf(p.position) l
