-- Selects the last position of the ledger, and the mark of the relay's newest cursor row beside the position up to
-- which it has published. Locks nothing. Indexes: (position) and the primary key, both backwards.
select coalesce((select e.position from taskledger.event e order by e.position desc limit 1), 0), r.mark, r.top
  from (values (1)) one
  left join (
    select c.mark::text as mark, greatest(c.seen_top, c.after_position) as top
      from taskledger.cursors c
     where c.reader = 'relay'
     order by c.n desc
     limit 1) r on true
