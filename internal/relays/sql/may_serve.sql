-- Inserts nothing, and raises insufficient_privilege unless the session is a member of the services' role. Locks
-- nothing but the table in the weakest mode. Index: none.
insert into taskledger.parked (position, kind, biz_id, version, reason)
select 0, '', '', 0, '' where false
