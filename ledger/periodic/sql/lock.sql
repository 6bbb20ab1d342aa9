-- Keeps all others from applying schedules until this transaction ends; whoever is at it is waited
-- for. What changes no schedule goes on, and so do those that fire slots.
select pg_advisory_xact_lock(hashtextextended('taskledger.schedule', 0))
