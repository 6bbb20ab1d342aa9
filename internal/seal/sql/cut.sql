-- Where the rows of seal begin: the last batch without a row, the leaves up to its end, the highest of their
-- positions, the exclusive or of their positions, the archive with their tiles, and the partial tiles of their tree in
-- hexadecimal. No row if seal is complete. Locks nothing. Index: primary key, backwards.
select c.batch, c.leaves, c.top, c.positions_xor, c.place, encode(c.edge, 'hex')
  from taskledger.seal_cut c
 order by c.batch desc
 limit 1
