-- Returns the statement that makes a schema. DDL has no parameters.
-- $1 name. Locks nothing.
select format('create schema %I', $1::text)
