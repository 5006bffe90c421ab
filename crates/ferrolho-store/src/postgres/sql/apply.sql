-- Carries out a batch: one statement, one round trip, one commit.
--
-- First it looks without any lock and answers what cannot succeed. If anything is left it takes the row of
-- ferrolho_commit, only then reads the clock, looks again, and writes. That row's lock is the order of all
-- commits, so tokens drawn from it rise however long a connection stalls.
--
-- p_era, p_clock: the clock that the caller expects. When it is off by more than a second nothing is done: the
--                 clock was stepped, or the call comes so late that its caller has long given up.
-- p_act:   false to look only.
-- p_clear: how many dead locks to clear at most, in a commit that is made anyway or when there are no changes.
-- The arrays: one element a change; changes of one group, which stand together, are done all or none. A resource
--          occurs once.
--
-- The first row (place 0) tells the clock, and in done whether it was as expected. Then a row for each change that
-- was answered: done or not, and the lock as it is now.
CREATE OR REPLACE FUNCTION {schema}.ferrolho_apply_{edition}(
    p_era bigint, p_clock bigint, p_act boolean, p_clear integer,
    p_group integer[], p_resource text[],
    p_expect text[], p_owner text[], p_principal text[], p_token bigint[],
    p_write text[], p_ttl integer[],
    p_new_owner text[], p_new_principal text[], p_metadata text[], p_mark text[],
    p_end text[], p_begin text[], p_reason text[]
) RETURNS TABLE (
    place integer, done boolean, era bigint, clock bigint,
    resource text, token bigint, owner text, principal text, acquired bigint, expires bigint,
    metadata text, mark text, remaining bigint
)
LANGUAGE plpgsql
SET search_path = pg_catalog
-- Plans are made when the table may still be small, and kept while it grows: only look-ups by key stay right. Hence
-- also OFFSET 0 below, which keeps a look-up a look-up, and ends that are compared as numbers where the index on
-- them must not be taken.
SET jit = off
SET enable_seqscan = off
SET plan_cache_mode = force_generic_plan
-- Gives up, with nothing done, before the caller does.
SET lock_timeout = '2s'
AS $$
#variable_conflict use_column
DECLARE
    second    CONSTANT bigint := 1000000;
    separator CONSTANT text := chr(31);
    me        {schema}.ferrolho_commit;
    first_raw bigint;
    raw       bigint;
    now       bigint;
    moment    timestamptz;
    refused   integer[] := '{}';
    granted   bigint[] := array_fill(NULL::bigint, ARRAY[cardinality(p_resource)]);
    drawn     bigint;
    removed   text[] := '{}';
    renewed   text[] := '{}';
    lives     interval[] := '{}';
    clearing  boolean;
    events    text[] := '{}';
    r         record;
BEGIN
    PERFORM {schema}.ferrolho_guard_{edition}();
    SELECT * INTO STRICT me FROM {schema}.ferrolho_commit;
    first_raw := {schema}.ferrolho_micros_{edition}(clock_timestamp());
    era := me.clock_era;
    clock := first_raw;
    place := 0;
    done := era = p_era AND first_raw BETWEEN p_clock - second AND p_clock + second;
    RETURN NEXT;
    IF done IS NOT TRUE THEN
        RETURN;
    END IF;
    now := first_raw - me.clock_skew;
    moment := {schema}.ferrolho_moment_{edition}(now);

    FOR pass IN 1..2 LOOP
        IF pass = 2 THEN
            clearing := p_clear > 0 AND p_resource = '{}' AND EXISTS (
                SELECT FROM {schema}.distributed_locks l WHERE l.expires_at <= moment
            );
            EXIT WHEN NOT p_act OR (cardinality(refused) = cardinality(p_resource) AND NOT clearing);

            -- Until the commit: durable whatever the session says, and a caller whose machine vanishes in the
            -- middle of its message lets go of the row within 10 seconds.
            PERFORM
                set_config('synchronous_commit', 'on', true)
                WHERE current_setting('synchronous_commit') NOT IN ('on', 'remote_apply');
            PERFORM
                set_config('tcp_keepalives_idle', '4', true),
                set_config('tcp_keepalives_interval', '2', true),
                set_config('tcp_keepalives_count', '3', true);

            SELECT * INTO STRICT me FROM {schema}.ferrolho_commit FOR UPDATE;
            drawn := me.n;
            raw := {schema}.ferrolho_micros_{edition}(clock_timestamp());
            IF me.clock_era <> p_era OR raw NOT BETWEEN first_raw - second AND first_raw + 3 * second THEN
                RAISE serialization_failure USING MESSAGE = 'the clock was stepped in between';
            END IF;
            now := raw - me.clock_skew;
            moment := {schema}.ferrolho_moment_{edition}(now);

            -- What is dead and in the way, and some of what else is dead.
            FOR r IN
                DELETE FROM {schema}.distributed_locks l
                WHERE {schema}.ferrolho_micros_{edition}(l.expires_at) <= now AND l.resource = ANY (p_resource || ARRAY(
                    SELECT d.resource FROM {schema}.distributed_locks d
                    WHERE d.expires_at <= moment ORDER BY d.expires_at LIMIT p_clear
                ))
                RETURNING l.*
            LOOP
                events := array_append(events, {schema}.ferrolho_event_{edition}(
                    'expired', moment, r.id, r.acquired_at, r.expires_at,
                    r.resource, r.owner, r.principal, NULL, r.metadata
                ));
            END LOOP;
        END IF;

        -- The first time only what does not fit is answered, the second time all the rest.
        FOR r IN
            SELECT * FROM (
                SELECT c.*, l.id, l.owner, l.principal, l.acquired_at, l.expires_at, l.metadata, l.mark,
                    bool_and(coalesce(CASE c.expect
                        WHEN 'free' THEN l.id IS NULL
                        WHEN 'held' THEN l.owner = c.by_owner
                            AND l.principal IS NOT DISTINCT FROM c.by_principal
                            AND l.id = coalesce(c.by_token, l.id)
                        WHEN 'token' THEN l.id = c.by_token
                    END, false)) OVER (PARTITION BY c.in_group) AS fits
                FROM unnest(
                    p_group, p_resource, p_expect, p_owner, p_principal, p_token, p_write, p_ttl,
                    p_new_owner, p_new_principal, p_metadata, p_mark, p_end, p_begin, p_reason
                ) WITH ORDINALITY AS c (
                    in_group, name, expect, by_owner, by_principal, by_token, write, ttl,
                    new_owner, new_principal, new_metadata, new_mark, event_end, event_begin, reason, place
                )
                LEFT JOIN LATERAL (
                    SELECT * FROM {schema}.distributed_locks h
                    WHERE h.resource = c.name AND {schema}.ferrolho_micros_{edition}(h.expires_at) > now
                    OFFSET 0
                ) l ON true
                WHERE pass = 1 OR c.in_group <> ALL (refused)
            ) s
            WHERE pass = 2 OR NOT s.fits
            ORDER BY s.place
        LOOP
            IF pass = 1 THEN
                refused := array_append(refused, r.in_group);
            END IF;
            place := r.place;
            done := r.fits;
            resource := r.name;

            IF done AND r.event_end IS NOT NULL THEN
                events := array_append(events, {schema}.ferrolho_event_{edition}(
                    r.event_end, moment, r.id, r.acquired_at, r.expires_at,
                    r.name, r.owner, r.principal, r.reason, r.metadata
                ));
            END IF;

            IF done AND r.write = 'grant' THEN
                me.n := me.n + 1;
                r.id := me.n;
                r.owner := r.new_owner;
                r.principal := r.new_principal;
                r.acquired_at := moment;
                r.expires_at := moment + r.ttl * interval '1 second';
                r.metadata := r.new_metadata;
                r.mark := r.new_mark;
                granted[r.place] := r.id;
            ELSIF done AND r.write = 'extend' THEN
                r.expires_at := moment + r.ttl * interval '1 second';
                renewed := array_append(renewed, r.name);
                lives := array_append(lives, r.ttl * interval '1 second');
            ELSIF done AND r.write = 'remove' THEN
                removed := array_append(removed, r.name);
                r.id := NULL;
            END IF;

            IF done AND r.event_begin IS NOT NULL THEN
                events := array_append(events, {schema}.ferrolho_event_{edition}(
                    r.event_begin, moment, r.id, r.acquired_at, r.expires_at,
                    r.name, r.owner, r.principal, NULL, r.metadata
                ));
            END IF;

            token := r.id;
            owner := r.owner;
            principal := r.principal;
            acquired := {schema}.ferrolho_micros_{edition}(r.acquired_at);
            expires := {schema}.ferrolho_micros_{edition}(r.expires_at);
            metadata := r.metadata;
            mark := r.mark;
            remaining := expires - now;
            RETURN NEXT;
        END LOOP;
    END LOOP;

    -- All of a kind in one statement: one for each would take twice as long.
    IF removed <> '{}' THEN
        DELETE FROM {schema}.distributed_locks l WHERE l.resource = ANY (removed);
    END IF;
    IF renewed <> '{}' THEN
        UPDATE {schema}.distributed_locks l SET expires_at = moment + lives[array_position(renewed, l.resource)]
        WHERE l.resource = ANY (renewed);
    END IF;
    -- A place without a token is no grant.
    IF me.n > drawn THEN
        INSERT INTO {schema}.distributed_locks
            (id, resource, owner, expires_at, acquired_at, principal, metadata, mark)
        SELECT g.token, g.name, g.owner, moment + g.ttl * interval '1 second', moment, g.principal, g.metadata, g.mark
        FROM unnest(granted, p_resource, p_new_owner, p_ttl, p_new_principal, p_metadata, p_mark)
            AS g (token, name, owner, ttl, principal, metadata, mark)
        WHERE g.token IS NOT NULL
        ON CONFLICT (resource) DO UPDATE SET
            id = excluded.id, owner = excluded.owner, expires_at = excluded.expires_at,
            acquired_at = excluded.acquired_at, principal = excluded.principal,
            metadata = excluded.metadata, mark = excluded.mark;
    END IF;

    IF events <> '{}' THEN
        me.commits := me.commits + 1;
        UPDATE {schema}.ferrolho_commit SET n = me.n, commits = me.commits, clock_seen = raw;
        -- One notification an event. Each is told apart by its number, since equal ones would be folded into one.
        PERFORM pg_notify(
            'ferrolho_' || me.epoch,
            concat_ws(separator, me.commits, e.place - 1, cardinality(events), e.event)
        )
        FROM unnest(events) WITH ORDINALITY AS e (event, place) ORDER BY e.place;
    END IF;
END
$$;
