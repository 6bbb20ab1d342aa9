-- Hashes of the tree in hexadecimal: leaves, and nodes of level 5 and above.
-- $1 leaves (array literal), or for a node the leaf that completes it; $2 numbers of nodes, -1 for a leaf.
-- Returns '' for a hash that is missing. Locks nothing. Index: (first_leaf), backwards.
select coalesce(
         (select case
                   when h.node >= 0
                   then encode(substring(s.nodes from (h.node - s.first_node)::integer * 32 + 1 for 32), 'hex')
                   else encode(substring(s.leaves from (h.leaf - s.first_leaf)::integer * 32 + 1 for 32), 'hex')
                 end
            from taskledger.seal s
           where s.first_leaf <= h.leaf
           order by s.first_leaf desc
           limit 1), '')
  from unnest($1::text::bigint[], $2::text::bigint[]) with ordinality h(leaf, node, n)
 order by h.n
