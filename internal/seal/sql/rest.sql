-- The events of removed rows of seal that are in seal_rest, whose leaves are in a range: position, leaf, and salt or
-- digest in hexadecimal, in the order of positions.
-- $1 first leaf, $2 leaf after the last. Locks nothing. Index: (leaf).
select r.position, r.leaf, encode(r.salt, 'hex')
  from taskledger.seal_rest r
 where r.leaf >= $1::bigint and r.leaf < $2::bigint
 order by r.position
