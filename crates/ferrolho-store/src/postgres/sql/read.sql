-- Reads. They take no lock and wait for no commit. Those of locks are volatile: the clock is read first, and the locks
-- are seen after it, so that no renewal in between is missed. Their rows are those of ferrolho_apply, the first of
-- them the clock's.

CREATE OR REPLACE FUNCTION {schema}.ferrolho_find_{edition}(p_resource text) RETURNS TABLE (
    place integer, done boolean, era bigint, clock bigint,
    resource text, token bigint, owner text, principal text, acquired bigint, expires bigint,
    metadata text, mark text, remaining bigint
)
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog
SET jit = off
SET enable_seqscan = off
SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
    now bigint;
BEGIN
    PERFORM {schema}.ferrolho_guard_{edition}();
    SELECT c.clock_era, {schema}.ferrolho_micros_{edition}(clock_timestamp()), c.clock_skew
        INTO STRICT era, clock, now FROM {schema}.ferrolho_commit c;
    now := clock - now;
    place := 0;
    done := true;
    RETURN NEXT;
    place := 1;
    SELECT l.resource, l.id, l.owner, l.principal,
            {schema}.ferrolho_micros_{edition}(l.acquired_at), {schema}.ferrolho_micros_{edition}(l.expires_at),
            l.metadata, l.mark, {schema}.ferrolho_micros_{edition}(l.expires_at) - now
        INTO resource, token, owner, principal, acquired, expires, metadata, mark, remaining
        FROM {schema}.distributed_locks l
        WHERE l.resource = p_resource AND {schema}.ferrolho_micros_{edition}(l.expires_at) > now;
    IF found THEN
        RETURN NEXT;
    END IF;
END
$$;

-- A page of live locks by the bytes of their names: from p_from and below p_below, after p_after, of p_owner, of
-- p_principal unless p_any_principal. An absent bound is null.
CREATE OR REPLACE FUNCTION {schema}.ferrolho_list_{edition}(
    p_from text, p_below text, p_after text, p_owner text, p_any_principal boolean, p_principal text,
    p_limit bigint
) RETURNS TABLE (
    place integer, done boolean, era bigint, clock bigint,
    resource text, token bigint, owner text, principal text, acquired bigint, expires bigint,
    metadata text, mark text, remaining bigint
)
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog
SET jit = off
SET enable_seqscan = off
SET plan_cache_mode = force_custom_plan
AS $$
#variable_conflict use_column
DECLARE
    now bigint;
BEGIN
    PERFORM {schema}.ferrolho_guard_{edition}();
    SELECT c.clock_era, {schema}.ferrolho_micros_{edition}(clock_timestamp()), c.clock_skew
        INTO STRICT era, clock, now FROM {schema}.ferrolho_commit c;
    now := clock - now;
    place := 0;
    done := true;
    RETURN NEXT;
    RETURN QUERY
        SELECT 1, true, era, clock, l.resource, l.id, l.owner, l.principal,
            {schema}.ferrolho_micros_{edition}(l.acquired_at), {schema}.ferrolho_micros_{edition}(l.expires_at),
            l.metadata, l.mark, {schema}.ferrolho_micros_{edition}(l.expires_at) - now
        FROM {schema}.distributed_locks l
        WHERE {schema}.ferrolho_micros_{edition}(l.expires_at) > now
            AND l.resource >= p_from
            AND (p_below IS NULL OR l.resource < p_below)
            AND (p_after IS NULL OR l.resource > p_after)
            AND (p_owner IS NULL OR l.owner = p_owner)
            AND (p_any_principal OR l.principal IS NOT DISTINCT FROM p_principal)
        ORDER BY l.resource
        LIMIT p_limit;
END
$$;

-- How the store is: its history and how far it has come, its clock, and how many microseconds from now the next lock
-- ends: negative when a dead one is to be cleared, null when there is none.
CREATE OR REPLACE FUNCTION {schema}.ferrolho_pulse_{edition}() RETURNS TABLE (
    epoch bigint, commits bigint, era bigint, clock bigint, skew bigint, seen bigint, next_end bigint
)
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog
SET jit = off
SET enable_seqscan = off
SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
BEGIN
    PERFORM {schema}.ferrolho_guard_{edition}();
    SELECT c.epoch, c.commits, c.clock_era, {schema}.ferrolho_micros_{edition}(clock_timestamp()), c.clock_skew, c.clock_seen
        INTO STRICT epoch, commits, era, clock, skew, seen FROM {schema}.ferrolho_commit c;
    SELECT {schema}.ferrolho_micros_{edition}(min(l.expires_at)) - (clock - skew)
        INTO next_end FROM {schema}.distributed_locks l;
    RETURN NEXT;
END
$$;

-- How many locks live: counted up to 10 000, beyond that as far as the database's statistics know.
CREATE OR REPLACE FUNCTION {schema}.ferrolho_count_{edition}() RETURNS bigint
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog
SET jit = off
AS $$
DECLARE
    counted bigint;
    moment  timestamptz;
BEGIN
    SELECT {schema}.ferrolho_moment_{edition}({schema}.ferrolho_micros_{edition}(clock_timestamp()) - c.clock_skew)
        INTO STRICT moment FROM {schema}.ferrolho_commit c;
    SELECT count(*) INTO counted FROM (
        SELECT FROM {schema}.distributed_locks l WHERE l.expires_at > moment LIMIT 10001
    ) AS living;
    IF counted > 10000 THEN
        SELECT greatest(counted, reltuples::bigint) INTO counted
            FROM pg_class WHERE oid = '{schema}.distributed_locks'::regclass;
    END IF;
    RETURN counted;
END
$$;
