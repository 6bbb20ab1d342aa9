-- Skips the event of a task that has failed, parked or as that which stops the projection. Those that wait for it are
-- to be applied.
-- $1 projection, $2 kind, $3 biz_id. Returns the versions that are skipped. Locks the rows. Indexes: primary keys.
with parked as (
  update taskledger.projection_parked p
     set state = case when p.reason <> '' then 'skipped' else 'retry' end
   where p.projection = $1::text and p.kind = $2::text and p.biz_id = $3::text and p.state <> 'skipped'
  returning p.version, p.state
), stopped as (
  insert into taskledger.projection_parked
         (projection, kind, biz_id, version, position, state, reason, failures)
  select p.name, p.failed_kind, p.failed_biz_id, p.failed_version, p.failed_position, 'skipped', p.failure, p.failures
    from taskledger.projection p
   where p.name = $1::text and p.failures > 0 and p.failed_kind = $2::text and p.failed_biz_id = $3::text
      on conflict do nothing
  returning version
)
select parked.version::text from parked where parked.state = 'skipped'
 union all
select stopped.version::text from stopped
