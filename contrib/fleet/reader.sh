#!/bin/sh
# The role with which Grafana reads the catalogue. It may read all tables, also those that bsd makes later, and write none.
set -eu
psql --set ON_ERROR_STOP=1 --set password="$READER_PASSWORD" --username "$POSTGRES_USER" "$POSTGRES_DB" <<'END'
CREATE ROLE bsd_reader LOGIN PASSWORD :'password';
GRANT pg_read_all_data TO bsd_reader;
END
