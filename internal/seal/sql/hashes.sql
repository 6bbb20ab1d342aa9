-- Hashes of the tree in hexadecimal: leaves, and nodes of level 5 and above.
-- $1 leaves (array literal), or for a node the leaf that completes it; $2 numbers of nodes, -1 for a leaf.
-- Returns '' for a missing hash, or if the number of leaves or nodes before its batch is wrong. Locks nothing. Index:
-- (first_leaf), backwards.
select coalesce(
         (select case
                   when h.node >= 0 and h.node::numeric - s.first_node between 0 and 30000000
                   then encode(substring(s.nodes from (h.node - s.first_node)::integer * 32 + 1 for 32), 'hex')
                   when h.node < 0 and h.leaf::numeric - s.first_leaf between 0 and 30000000
                   then encode(substring(s.leaves from (h.leaf - s.first_leaf)::integer * 32 + 1 for 32), 'hex')
                 end
            from taskledger.seal s
           where s.first_leaf <= h.leaf
           order by s.first_leaf desc
           limit 1), '')
  from unnest($1::text::bigint[], $2::text::bigint[]) with ordinality h(leaf, node, n)
 order by h.n
