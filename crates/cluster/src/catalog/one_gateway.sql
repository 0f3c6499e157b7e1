
DO $tutti$
BEGIN
    IF pg_catalog.to_regclass('tutti.serving') IS NULL THEN
        CREATE VIEW tutti.serving AS SELECT true AS one_gateway;
        COMMENT ON VIEW tutti.serving IS 'The gateway that serves the cluster holds a lock on this of node 1, as long as it serves.';
    END IF;
END $tutti$;

CREATE TABLE IF NOT EXISTS tutti.gateway (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    incarnation bigint NOT NULL
);
COMMENT ON TABLE tutti.gateway IS 'The newest gateway that has come to this node. What an earlier one sends is refused.';
INSERT INTO tutti.gateway (incarnation) VALUES (0) ON CONFLICT DO NOTHING;

CREATE UNLOGGED TABLE IF NOT EXISTS tutti.backend (
    pid integer PRIMARY KEY,
    started timestamptz NOT NULL,
    incarnation bigint NOT NULL
);
COMMENT ON TABLE tutti.backend IS 'The backends on which clients'' statements run, and for which gateway. They end with a crash of this server, and so does the list.';

CREATE UNLOGGED TABLE IF NOT EXISTS tutti.gateway_there (
    identity bigint PRIMARY KEY,
    address text NOT NULL,
    leads boolean NOT NULL,
    pid integer NOT NULL,
    started timestamptz NOT NULL,
    since timestamptz NOT NULL DEFAULT pg_catalog.now()
);
COMMENT ON TABLE tutti.gateway_there IS 'On node 1: the gateways of the cluster, and where they pass clients on to each other. One whose backend (pid, started) has ended is gone.';

CREATE OR REPLACE FUNCTION tutti.serve(of_incarnation bigint, seal text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $tutti$
BEGIN
    IF tutti.is_sealed('serve ' || of_incarnation, seal) IS NOT TRUE THEN
        RAISE insufficient_privilege USING MESSAGE = 'only a gateway can serve clients';
    END IF;
    -- A gateway that takes over waits for this transaction, or this waits for it and sees its number.
    LOCK TABLE tutti.backend IN ROW EXCLUSIVE MODE;
    IF EXISTS (SELECT FROM tutti.gateway g WHERE of_incarnation < g.incarnation) THEN
        RAISE admin_shutdown USING MESSAGE = 'another gateway has taken the cluster over',
            HINT = 'Connect again.';
    END IF;
    INSERT INTO tutti.backend AS b (pid, started, incarnation)
        SELECT a.pid, a.backend_start, of_incarnation
        FROM pg_stat_get_activity(pg_backend_pid()) AS a
        ON CONFLICT (pid) DO UPDATE
            SET started = excluded.started, incarnation = excluded.incarnation;
END $tutti$;
COMMENT ON FUNCTION tutti.serve IS 'Takes the calling backend into the list of those that run clients'' statements for this gateway. The caller must be one.';

