-- Fails if the login may not seal, and writes nothing.
insert into taskledger.seal (batch, first_leaf, first_node, top, is_late, positions, leaves, nodes, salts)
select 0, 0, 0, 0, false, '{}', '', '', '{}' where false
