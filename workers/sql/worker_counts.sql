-- Selects the kinds that live workers handle, with the number of these workers. Locks nothing. Reads the whole small
-- table.
select w.kind, count(distinct w.worker)
  from taskledger.worker_kinds w
 group by w.kind
