-- Returns how many tasks have succeeded, by the events and by the projection. No parameters. Takes no
-- locks.
select (select count(*) from taskledger.event where type = 'succeeded'),
       (select count(*) from taskledger.tasks where state = 'succeeded')
