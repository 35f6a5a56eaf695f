#!/bin/sh
# The role with which Grafana reads the catalogue. It may not write, and sees the tables that bsd makes later.
set -eu
psql --set ON_ERROR_STOP=1 --set password="$READER_PASSWORD" --username "$POSTGRES_USER" "$POSTGRES_DB" <<'END'
CREATE ROLE bsd_reader LOGIN PASSWORD :'password';
END
