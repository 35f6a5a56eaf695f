-- The first schema. bsd of this schema number and later can read it.
-- readable from: 1

CREATE TABLE bsd.hosts (
    id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text NOT NULL,
    key text NOT NULL,
    version text NOT NULL,
    first_seen timestamptz NOT NULL DEFAULT now(),
    last_seen timestamptz NOT NULL DEFAULT now(),
    behind_files bigint NOT NULL DEFAULT 0,
    behind_bytes bigint NOT NULL DEFAULT 0,
    behind_seconds double precision,
    errors integer NOT NULL DEFAULT 0,
    last_error text,
    UNIQUE (name, key)
);
COMMENT ON TABLE bsd.hosts IS 'Hosts, as they last told the catalogue';
COMMENT ON COLUMN bsd.hosts.key IS '8 hex digits that distinguish hosts of one name';
COMMENT ON COLUMN bsd.hosts.last_seen IS 'By the clock of this server';
COMMENT ON COLUMN bsd.hosts.behind_files IS 'Files that are not in the bucket yet';
COMMENT ON COLUMN bsd.hosts.behind_seconds IS 'Age of the oldest of them; null: nothing waits';
COMMENT ON COLUMN bsd.hosts.errors IS 'Since the last success';

CREATE TABLE bsd.sessions (
    id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    host integer NOT NULL REFERENCES bsd.hosts ON DELETE CASCADE,
    agent text NOT NULL,
    session text NOT NULL,
    program text NOT NULL DEFAULT '',
    title text,
    directory text,
    parent text,
    created timestamptz,
    updated timestamptz NOT NULL DEFAULT now(),
    size bigint NOT NULL DEFAULT 0,
    entries integer NOT NULL DEFAULT 0,
    calls integer NOT NULL DEFAULT 0,
    cost double precision NOT NULL DEFAULT 0,
    saved bigint NOT NULL DEFAULT 0,
    models text[] NOT NULL DEFAULT '{}',
    deleted_at timestamptz,
    UNIQUE (host, agent, session)
);
CREATE INDEX sessions_by_updated ON bsd.sessions (updated, id);
CREATE INDEX sessions_by_host ON bsd.sessions (host, updated, id);
COMMENT ON TABLE bsd.sessions IS 'Sessions of all hosts; sizes in bytes, costs in US dollars';
COMMENT ON COLUMN bsd.sessions.saved IS 'Bytes by which its lines are shorter now';
COMMENT ON COLUMN bsd.sessions.deleted_at IS 'When it was deleted on its host';

-- How far each session was read; for bsd itself.
CREATE TABLE bsd.watermarks (
    session integer PRIMARY KEY REFERENCES bsd.sessions ON DELETE CASCADE,
    file bigint[] NOT NULL,
    read_to bigint NOT NULL,
    lines integer NOT NULL,
    guard bytea NOT NULL,
    state text NOT NULL,
    stale boolean NOT NULL,
    revision bigint NOT NULL,
    first_time timestamptz,
    last_time timestamptz
);

-- The objects of the bucket that say what was forgotten, once their rows are gone; for bsd itself.
CREATE TABLE bsd.tombstones (
    object text PRIMARY KEY,
    obeyed_at timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE bsd.entries (
    time timestamptz NOT NULL,
    session integer NOT NULL,
    line integer NOT NULL,
    size integer NOT NULL,
    tokens integer NOT NULL,
    digest uuid NOT NULL,
    input_tokens integer,
    output_tokens integer,
    cache_read_tokens integer,
    cache_write_tokens integer,
    extracted_size integer,
    saved integer,
    cost double precision,
    extracted_at timestamptz,
    entry text,
    role text,
    tool text,
    model text,
    provider text,
    stored bytea,
    words tsvector,
    PRIMARY KEY (session, line, time)
) PARTITION BY RANGE (time);
ALTER TABLE bsd.entries ALTER COLUMN words SET STATISTICS 0;
CREATE INDEX entries_by_time ON bsd.entries (time);
CREATE INDEX entries_by_words ON bsd.entries USING gin (words);
CREATE INDEX entries_by_stored ON bsd.entries (stored) WHERE stored IS NOT NULL;
COMMENT ON TABLE bsd.entries IS 'Entries of sessions, a partition for each month of their time';
COMMENT ON COLUMN bsd.entries.size IS 'Bytes of the line as it stands in the session';
COMMENT ON COLUMN bsd.entries.tokens IS 'Estimated, of its values in context';
COMMENT ON COLUMN bsd.entries.digest IS 'Changes with the line';
COMMENT ON COLUMN bsd.entries.input_tokens IS 'Not null: the entry reports the tokens of a call';
COMMENT ON COLUMN bsd.entries.extracted_at IS 'When its values left the session';
COMMENT ON COLUMN bsd.entries.stored IS 'SHA-256 of the original line in the store';
COMMENT ON COLUMN bsd.entries.words IS 'Words of users and assistants; null if text = false';

-- The statistics of PostgreSQL keep values of deleted rows, so there are none of texts.
ALTER TABLE bsd.sessions ALTER COLUMN title SET STATISTICS 0;
ALTER TABLE bsd.sessions ALTER COLUMN directory SET STATISTICS 0;
ALTER TABLE bsd.watermarks ALTER COLUMN state SET STATISTICS 0;

-- Makes the partition of a month, so that readers and writers of the others need not wait.
CREATE FUNCTION bsd.make_partition(month date) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    first date := date_trunc('month', month);
    name text := 'entries_' || to_char(first, 'YYYY_MM');
BEGIN
    PERFORM pg_advisory_xact_lock(hashtext('bsd.entries'));
    IF NOT EXISTS (
        SELECT FROM pg_class c
        WHERE c.relname = name AND c.relnamespace = 'bsd'::regnamespace
    ) THEN
        EXECUTE format('CREATE TABLE bsd.%I (LIKE bsd.entries INCLUDING ALL)', name);
        EXECUTE format('ALTER TABLE bsd.%I ALTER COLUMN words SET STATISTICS 0', name);
        EXECUTE format(
            'ALTER TABLE bsd.entries ATTACH PARTITION bsd.%I FOR VALUES FROM (%L) TO (%L)',
            name, first::timestamp AT TIME ZONE 'UTC',
            (first + interval '1 month')::timestamp AT TIME ZONE 'UTC');
        EXECUTE format('ALTER TABLE bsd.%I OWNER TO %I', name, (
            SELECT r.rolname FROM pg_class c JOIN pg_roles r ON r.oid = c.relowner
            WHERE c.oid = 'bsd.entries'::regclass));
    END IF;
END $$;

CREATE VIEW bsd.host_names AS
SELECT id,
    CASE WHEN count(*) OVER (PARTITION BY name) > 1 THEN name || '~' || key ELSE name END AS host
FROM bsd.hosts;
COMMENT ON VIEW bsd.host_names IS 'Names of hosts as bsd shows them: NAME, or NAME~KEY';

CREATE VIEW bsd.calls AS
SELECT h.name AS host, s.agent, s.session, s.program, e.line, e.time, e.provider, e.model,
    e.input_tokens, e.output_tokens, e.cache_read_tokens, e.cache_write_tokens, e.cost
FROM bsd.entries e
JOIN bsd.sessions s ON s.id = e.session
JOIN bsd.hosts h ON h.id = s.host
WHERE e.input_tokens IS NOT NULL;
COMMENT ON VIEW bsd.calls IS 'Calls of models: tokens as the provider counted them, US dollars';

CREATE VIEW bsd.savings_by_hour AS
SELECT date_trunc('hour', e.extracted_at) AS hour, h.name AS host, s.agent,
    count(*) AS entries, sum(e.saved) AS saved, sum(e.extracted_size) AS extracted_size
FROM bsd.entries e
JOIN bsd.sessions s ON s.id = e.session
JOIN bsd.hosts h ON h.id = s.host
WHERE e.extracted_at IS NOT NULL
GROUP BY 1, 2, 3;
COMMENT ON VIEW bsd.savings_by_hour IS 'Bytes that left sessions, by the hour in which they did';

CREATE VIEW bsd.cost_by_agent_and_day AS
SELECT (time AT TIME ZONE 'UTC')::date AS day, host, agent, count(*) AS calls,
    sum(input_tokens) AS input_tokens, sum(output_tokens) AS output_tokens,
    sum(cache_read_tokens) AS cache_read_tokens, sum(cache_write_tokens) AS cache_write_tokens,
    sum(cost) AS cost
FROM bsd.calls
GROUP BY 1, 2, 3;
COMMENT ON VIEW bsd.cost_by_agent_and_day IS 'Cost of calls; days are those of UTC';
