-- The leaves of the batches from the batch with a leaf on: the number of the first, and the hashes in hexadecimal.
-- $1 leaf, $2 number of batches. Locks nothing. Index: (first_leaf).
select s.first_leaf, encode(s.leaves, 'hex')
  from taskledger.seal s
 where s.first_leaf >= (
   select b.first_leaf from taskledger.seal b where b.first_leaf <= $1::bigint order by b.first_leaf desc limit 1)
 order by s.first_leaf
 limit $2::bigint
