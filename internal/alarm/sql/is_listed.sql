-- Selects whether the projector's list of lingering tasks may be used. Locks nothing. Index: primary key of cursor,
-- backwards.
select c.is_current from taskledger_internal.lingering_is_current c
