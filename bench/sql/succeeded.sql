-- How many tasks have succeeded: by the events, and by the running totals of the projection.
-- No parameters.
select (select count(*) from taskledger.event where type = 'succeeded'),
       (select count(*) from taskledger.task where state = 'succeeded')
