CREATE TABLE IF NOT EXISTS tutti.request (
    owner text NOT NULL,
    family text NOT NULL,
    fence bigint NOT NULL,
    instance bigint,
    request text,
    result text,
    gid text,
    at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
    PRIMARY KEY (owner, family)
);
COMMENT ON TABLE tutti.request IS 'Families of requests that this node keeps: which instance of each has committed, with what result; none with a number below the fence will. One row per family of a role, kept for as long as the gateway''s configuration says.';
-- A commit comes long after its transaction has begun, perhaps; before shape 36 it was that.
ALTER TABLE tutti.request ALTER COLUMN at SET DEFAULT pg_catalog.clock_timestamp();
CREATE INDEX IF NOT EXISTS request_at ON tutti.request (at);

CREATE OR REPLACE FUNCTION tutti.begin_request(of_owner text, of_family text, number bigint)
RETURNS TABLE (fence bigint, instance bigint, request text, result text, gid text)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET lock_timeout = '500ms' AS $tutti$
#variable_conflict use_column
BEGIN
    INSERT INTO tutti.request AS r (owner, family, fence) VALUES (of_owner, of_family, number)
        ON CONFLICT (owner, family) DO UPDATE SET fence = excluded.fence, at = clock_timestamp()
            WHERE r.instance IS NULL AND r.fence <= excluded.fence;
    RETURN QUERY SELECT r.fence, r.instance, r.request, r.result, r.gid FROM tutti.request r
        WHERE r.owner = of_owner AND r.family = of_family;
END $tutti$;
COMMENT ON FUNCTION tutti.begin_request IS 'An instance of a request begins: from now on none before it commits, unless one has; returns what is kept of the family. By whom is for the gateway to say. 55P03 where one is being committed and that takes long.';

CREATE OR REPLACE FUNCTION tutti.keep_request(of_owner text, of_family text, number bigint, asked text, told text, by_gid text)
RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET lock_timeout = '5s' AS $tutti$
DECLARE
    kept tutti.request%ROWTYPE;
BEGIN
    INSERT INTO tutti.request AS r (owner, family, fence, instance, request, result, gid)
        VALUES (of_owner, of_family, number, number, asked, told, by_gid)
        ON CONFLICT (owner, family) DO UPDATE SET fence = excluded.fence, instance = excluded.instance,
                request = excluded.request, result = excluded.result, gid = excluded.gid, at = clock_timestamp()
            WHERE r.instance IS NULL AND r.fence <= excluded.fence;
    IF FOUND THEN
        RETURN;
    END IF;
    SELECT * INTO kept FROM tutti.request r WHERE r.owner = of_owner AND r.family = of_family;
    IF kept.instance IS NOT NULL THEN
        RAISE EXCEPTION 'instance % of request "%" has committed already', kept.instance, of_family
            USING ERRCODE = '40001', HINT = 'Nothing of this one was committed. Begin a later instance: it is given the result.';
    END IF;
    RAISE EXCEPTION 'instance % of request "%" has begun, and this one is not to commit any more', kept.fence, of_family
        USING ERRCODE = '40001', HINT = 'Nothing of this one was committed. Begin a later instance: it is given the result, if there is one by then.';
END $tutti$;
COMMENT ON FUNCTION tutti.keep_request IS 'Keeps what an instance of a request has led to, in the transaction that commits it. Fails if another has committed, or a later one has begun.';

CREATE OR REPLACE FUNCTION tutti.decide_request(decided text, of_owner text, of_family text, number bigint, asked text, told text)
RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $tutti$
BEGIN
    INSERT INTO tutti.decision (gid, decision) VALUES (decided, 'committed');
    PERFORM tutti.keep_request(of_owner, of_family, number, asked, told, decided);
END $tutti$;
COMMENT ON FUNCTION tutti.decide_request IS 'Records that the transaction of this identifier is committed, and with it what the instance of a request has led to: both or neither.';

CREATE OR REPLACE FUNCTION tutti.keep_own_request(of_owner text, of_family text, number bigint, asked text, told text, seal text)
RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $tutti$
DECLARE
    message text;
BEGIN
    SELECT 'request ' || string_agg(coalesce(octet_length(part) || ':' || part, '-'), '' ORDER BY position)
        INTO message
        FROM unnest(ARRAY[of_owner, of_family, number::text, asked, told]) WITH ORDINALITY AS u (part, position);
    IF tutti.is_sealed(message, seal) IS NOT TRUE THEN
        RAISE insufficient_privilege USING MESSAGE = 'only a gateway can keep a request';
    END IF;
    PERFORM tutti.keep_request(of_owner, of_family, number, asked, told, NULL);
END $tutti$;
COMMENT ON FUNCTION tutti.keep_own_request IS 'Keeps what an instance of a request has led to, where all that it has written is on the node that keeps its family: in its own transaction.';
