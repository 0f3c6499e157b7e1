-- Whether a row was there at a moment before the statement that finds it. Part of the schema tutti. See
-- crates/sql/src/planner/dml/moment.rs.

-- Asked before the moment. A snapshot does not say which subtransactions are running, and nothing lists them; but of a
-- number it is known. So of the last numbers all are asked: what is not running now has ended before the moment.
CREATE OR REPLACE FUNCTION tutti.unfinished() RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $tutti$
DECLARE
    seen pg_snapshot := pg_current_snapshot();
    next bigint := pg_snapshot_xmax(seen)::text::bigint;
    -- Most are after the oldest that is running; a long transaction is not paid for by every statement.
    first bigint := greatest(pg_snapshot_xmin(seen)::text::bigint, next - 2000);
    unfinished text;
BEGIN
    SELECT string_agg(x::text, ',') INTO unfinished FROM generate_series(first, next - 1) AS x
        WHERE pg_xact_status(x::text::xid8) = 'in progress';
    RETURN format('%s|%s|{%s}', first, next, unfinished);
END $tutti$;
COMMENT ON FUNCTION tutti.unfinished IS 'Of the numbers of transactions and subtransactions from the first up to the next, those that are running.';

-- Takes the number of the transaction that wrote a row's version, of 32 bits, and the moment at which other rows were
-- read before: the snapshot, and behind it what tutti.unfinished() had said before that. Returns true; 40001 if a
-- transaction that has committed since has written the version. `beside`: nothing that is looked at, but a row of the
-- statement's, so that rows are asked after they have been joined, and not all that are looked at.
CREATE OR REPLACE FUNCTION tutti.of_moment(version xid, moment text, beside record) RETURNS boolean
LANGUAGE plpgsql STABLE COST 1000 SET search_path = pg_catalog, pg_temp AS $tutti$
DECLARE
    before pg_snapshot := split_part(moment, '|', 1)::pg_snapshot;
    -- In which the statement has found the row, as the function is STABLE.
    found pg_snapshot := pg_current_snapshot();
    -- The next transaction is the first that this snapshot knows nothing of.
    next bigint := pg_snapshot_xmax(found)::text::bigint;
    low bigint := version::text::bigint;
    number bigint;
BEGIN
    IF before IS NULL THEN
        RAISE internal_error USING MESSAGE = 'no moment has come with the rows of other nodes';
    END IF;
    -- Of all numbers that end so, the one that is nearest.
    number := next + ((low - (next & 4294967295) + 6442450944) & 4294967295) - 2147483648;
    IF number < pg_snapshot_xmin(before)::text::bigint THEN
        RETURN true;
    END IF;
    -- Written after the row was found: it was waited for, and is looked at again. As on one server, beside what the
    -- others were then.
    IF number >= next OR number IN (SELECT x::text::bigint FROM pg_snapshot_xip(found) AS x) THEN
        RETURN true;
    END IF;
    -- What others are about to write nobody sees: it is the transaction's own.
    IF pg_xact_status(number::text::xid8) = 'in progress' THEN
        RETURN true;
    END IF;
    IF number < pg_snapshot_xmax(before)::text::bigint
        AND number NOT IN (SELECT x::text::bigint FROM pg_snapshot_xip(before) AS x) THEN
        IF number >= split_part(moment, '|', 2)::bigint AND number < split_part(moment, '|', 3)::bigint
            AND number <> ALL (split_part(moment, '|', 4)::bigint[]) THEN
            RETURN true;
        END IF;
        -- Either it was committed in between, or it is a subtransaction of one that was running: those have numbers
        -- above its own.
        IF NOT EXISTS (SELECT FROM pg_snapshot_xip(before) AS x WHERE x::text::bigint < number
                AND x NOT IN (SELECT y FROM pg_snapshot_xip(found) AS y)) THEN
            RETURN true;
        END IF;
    END IF;
    RAISE serialization_failure USING MESSAGE = 'could not serialize access due to concurrent update',
        DETAIL = 'A row that the statement would change has been changed after the rows of other nodes were read.',
        HINT = 'The transaction might succeed if retried.';
END $tutti$;
COMMENT ON FUNCTION tutti.of_moment IS 'Whether a row''s version was there at an earlier moment; an error if not.';
