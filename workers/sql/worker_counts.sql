-- Selects the kinds that live workers handle, each with the number of its workers. Locks nothing. Reads a whole small
-- table.
select w.kind, count(distinct w.worker)
  from taskledger_internal.worker_kinds w
 group by w.kind
