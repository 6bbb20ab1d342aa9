-- Reads the number of rejected enqueues. Locks nothing.
select case when r.is_called then r.last_value else 0 end
  from taskledger.rejected r
