-- Creates the business table. No parameters.
create table effect (id bigint generated always as identity primary key, biz_id text not null)
