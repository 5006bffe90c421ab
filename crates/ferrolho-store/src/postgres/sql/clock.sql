-- Puts the store's clock right after a step of the database's clock, so that the step neither frees a lock nor keeps
-- one. The caller expected p_clock in the era p_era and found the clock p_jump microseconds ahead of that, or behind
-- when negative. The step is taken out by moving clock_skew, once, whoever comes first; nothing is done when
--
-- * the clock is not off by as much now: the call comes late, or the clock was set right again;
-- * somebody else saw the time in between pass: the caller's machine slept, and the clock is right.
--
-- Without any lock there is nothing to protect, and the store goes by the database's clock again.
CREATE OR REPLACE FUNCTION {schema}.ferrolho_step_{edition}(p_era bigint, p_clock bigint, p_jump bigint) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog
SET lock_timeout = '2s'
AS $$
DECLARE
    second CONSTANT bigint := 1000000;
    me     {schema}.ferrolho_commit;
    raw    bigint;
BEGIN
    PERFORM {schema}.ferrolho_guard_{edition}();
    SELECT * INTO STRICT me FROM {schema}.ferrolho_commit FOR UPDATE;
    raw := {schema}.ferrolho_micros_{edition}(clock_timestamp());
    IF NOT EXISTS (SELECT FROM {schema}.distributed_locks) THEN
        p_jump := - me.clock_skew;
    ELSIF me.clock_era <> p_era
        OR raw - p_clock BETWEEN - second AND second
        OR raw - p_clock NOT BETWEEN p_jump - second AND p_jump + second
        OR p_jump > 0 AND me.clock_seen > p_clock + second
    THEN
        p_jump := 0;
    ELSE
        p_jump := raw - p_clock;
    END IF;
    IF p_jump <> 0 THEN
        UPDATE {schema}.ferrolho_commit
        SET clock_skew = clock_skew + p_jump, clock_era = clock_era + 1, clock_seen = raw;
    END IF;
END
$$;
