-- The tables, version 1. Runs once, under the migration's lock; {schema} is a quoted identifier.

-- The locks, dead ones included until they are cleared. The seed's five columns come first. Names sort by their
-- bytes. Metadata is the text that came in: jsonb would refuse \u0000 and reorder keys.
CREATE TABLE IF NOT EXISTS {schema}.distributed_locks (
    id          bigint                  NOT NULL,
    resource    text        COLLATE "C" PRIMARY KEY,
    owner       text        COLLATE "C" NOT NULL,
    expires_at  timestamptz             NOT NULL,
    acquired_at timestamptz             NOT NULL
);

-- A table that holds the seed's columns only is taken over, its times read as UTC.
SET LOCAL timezone = 'UTC';
ALTER TABLE {schema}.distributed_locks
    ALTER COLUMN id TYPE bigint,
    ALTER COLUMN resource TYPE text COLLATE "C",
    ALTER COLUMN owner TYPE text COLLATE "C",
    ALTER COLUMN expires_at TYPE timestamptz USING expires_at::text::timestamptz,
    ALTER COLUMN acquired_at TYPE timestamptz USING acquired_at::text::timestamptz,
    ADD COLUMN IF NOT EXISTS principal text COLLATE "C",
    ADD COLUMN IF NOT EXISTS metadata  text,
    ADD COLUMN IF NOT EXISTS mark      text NOT NULL DEFAULT '',
    ADD CONSTRAINT ferrolho_sound CHECK (
        id BETWEEN 1 AND 9007199254740991
        AND octet_length(resource) BETWEEN 1 AND 255
        AND octet_length(owner) BETWEEN 1 AND 255
        AND octet_length(principal) BETWEEN 1 AND 255
        AND octet_length(metadata) <= 4096
        AND isfinite(expires_at)
        AND isfinite(acquired_at)
    );
-- What else such a table must have, or must not, for a grant to go in.
DO $$
BEGIN
    IF NOT EXISTS (
        SELECT FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
        WHERE i.indrelid = '{schema}.distributed_locks'::regclass AND a.attname = 'resource'
            AND i.indisunique AND i.indimmediate AND i.indisvalid AND i.indnkeyatts = 1 AND i.indpred IS NULL
    ) THEN
        RAISE 'its column resource is not unique';
    END IF;
    IF EXISTS (
        SELECT FROM pg_attribute a
        WHERE a.attrelid = '{schema}.distributed_locks'::regclass AND a.attnum > 0 AND NOT a.attisdropped
            AND a.attnotnull AND NOT a.atthasdef AND a.attidentity = ''
            AND a.attname NOT IN ('id', 'resource', 'owner', 'expires_at', 'acquired_at')
    ) THEN
        RAISE 'it has further columns that must be given';
    END IF;
END
$$;

-- No second index knows the resource: on a small table a plan would take it for the look-up by name, scan all of it,
-- and be kept while the table grows.
CREATE INDEX IF NOT EXISTS distributed_locks_expires_at ON {schema}.distributed_locks (expires_at);
CREATE INDEX IF NOT EXISTS distributed_locks_owner ON {schema}.distributed_locks (owner);

-- The one row whose row lock is the order of all commits.
CREATE TABLE {schema}.ferrolho_commit (
    only_row   boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    -- Of these tables.
    version    integer NOT NULL,
    -- Tells this history from another database's: never 0.
    epoch      bigint  NOT NULL,
    -- The last fencing token that was given.
    n          bigint  NOT NULL,
    -- How many calls have changed anything: without gaps, so that a listener knows what it missed.
    commits    bigint  NOT NULL,
    -- The store's clock is the database's less clock_skew, in microseconds. The skew is 0 until the database's
    -- clock is stepped; clock_era counts its changes. clock_seen is when the database's clock was last seen
    -- by a call that changed something.
    clock_era  bigint  NOT NULL,
    clock_skew bigint  NOT NULL,
    clock_seen bigint  NOT NULL
);

INSERT INTO {schema}.ferrolho_commit (version, epoch, n, commits, clock_era, clock_skew, clock_seen)
SELECT 1, 1 + floor(random() * 9e15)::bigint, coalesce(max(id), 0), 0, 0, 0, 0
FROM {schema}.distributed_locks;
