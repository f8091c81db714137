#!/bin/sh
# Run by the PostgreSQL image when its volume is new: an example table, and a role that may only read it.
set -eu
psql --set=ON_ERROR_STOP=1 --set=password="$READER_PASSWORD" --username=postgres --dbname="$POSTGRES_DB" <<'SQL'
create table visits (
    patient text primary key,
    age integer not null,
    ward text not null,
    cost numeric(8, 2) not null,
    closed boolean not null
);
insert into visits
select 'R-' || lpad(number::text, 4, '0'),
       18 + (number * 37) % 75,
       (array['medicine', 'surgery', 'maternity'])[1 + number % 3],
       round((40 + (number * 7919) % 90000 / 100.0)::numeric, 2),
       number % 10 <> 0
from generate_series(1, 500) as number;
create role reader login password :'password';
grant select on visits to reader;
SQL
