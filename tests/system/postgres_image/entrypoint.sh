#!/bin/sh
# Fills an empty data folder with the scripts of /docker-entrypoint-initdb.d, then serves.
set -eu
if [ ! -e "$PGDATA/PG_VERSION" ]; then
    echo "$POSTGRES_PASSWORD" > /tmp/password
    initdb --username=postgres --pwfile=/tmp/password --auth-local=trust --auth-host=scram-sha-256
    rm /tmp/password
    echo 'host all all all scram-sha-256' >> "$PGDATA/pg_hba.conf"
    export PGHOST=/tmp
    pg_ctl --wait --options="-c listen_addresses='' -k /tmp" start
    createdb --username=postgres "$POSTGRES_DB"
    for script in /docker-entrypoint-initdb.d/*; do
        "$script"
    done
    pg_ctl --wait stop
fi
exec postgres -c listen_addresses='*' -k /tmp
