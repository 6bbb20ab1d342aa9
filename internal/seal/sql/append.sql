-- Appends a batch.
-- $1 batch, $2 first_leaf, $3 first_node, $4 top, $5 is_late (1 or 0), $6 positions (array literal), $7 leaves and $8
-- nodes in hexadecimal, $9 salts (array literal of hexadecimal text).
insert into taskledger.seal (batch, first_leaf, first_node, top, is_late, positions, leaves, nodes, salts)
select $1::bigint, $2::bigint, $3::bigint, $4::bigint, $5::integer = 1, $6::text::bigint[], decode($7::text, 'hex'),
       decode($8::text, 'hex'),
       array(select decode(x.salt, 'hex') from unnest($9::text::text[]) with ordinality x(salt, n) order by x.n)
