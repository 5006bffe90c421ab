-- What the functions share.

-- Microseconds since 1970. Exact until 2106: the seconds are off by less than a quarter of one, and so is their product
-- with a million. extract() gives the same as a numeric, at ten times the cost.
CREATE OR REPLACE FUNCTION {schema}.ferrolho_micros_{edition}(moment timestamptz) RETURNS bigint
LANGUAGE sql STABLE PARALLEL SAFE
RETURN (date_part('epoch', moment) * 1000000)::bigint;

-- The point so many microseconds after 1970, exactly: to_timestamp() would round.
CREATE OR REPLACE FUNCTION {schema}.ferrolho_moment_{edition}(micros bigint) RETURNS timestamptz
LANGUAGE sql STABLE PARALLEL SAFE
RETURN timestamptz 'epoch' + micros * interval '1 microsecond';

-- An event as it travels: fields that hold no control characters, and last the metadata, which may. With the numbers
-- in front at most 5 300 bytes; PostgreSQL takes 7 999.
CREATE OR REPLACE FUNCTION {schema}.ferrolho_event_{edition}(
    kind text, moment timestamptz, id bigint, acquired_at timestamptz, expires_at timestamptz,
    resource text, owner text, principal text, reason text, metadata text
) RETURNS text
LANGUAGE sql STABLE PARALLEL SAFE
RETURN concat_ws(
    chr(31), kind, {schema}.ferrolho_micros_{edition}(moment), id,
    {schema}.ferrolho_micros_{edition}(acquired_at), {schema}.ferrolho_micros_{edition}(expires_at),
    resource, owner, coalesce(principal, ''), coalesce(reason, ''), coalesce(metadata, '')
);

-- Refuses to work on a standby and in a read-only session, reads included: what they see may be long over.
CREATE OR REPLACE FUNCTION {schema}.ferrolho_guard_{edition}() RETURNS void
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    IF pg_is_in_recovery() OR current_setting('transaction_read_only')::boolean THEN
        RAISE read_only_sql_transaction USING MESSAGE = 'the database is a standby, or read-only';
    END IF;
END
$$;
