-- Who changes the schema of a node other than node 1. Part of the schema tutti.
--
-- What clients may make, they make through the gateway, on all nodes that are to have it. Code that runs on one of the
-- other nodes (a function that is declared 'row' or 'replicated', a trigger, a policy) has the same rights there, and
-- would make things that node 1 does not have: names that mean something else there to whoever comes next. So an event
-- trigger on those nodes refuses all that comes without a warrant, which the gateway sends ahead of a statement that it
-- repeats there. Superusers need none: what makes definitions runs as one, and code of theirs can do anything.
-- Temporary tables are no exception: whether a statement makes one is known at its end only, and nothing that would be
-- noted at its beginning is safe from the code that it runs.

CREATE UNLOGGED TABLE IF NOT EXISTS tutti.warrant (
    transaction xid8 NOT NULL,
    role name NOT NULL,
    is_many boolean NOT NULL
);
COMMENT ON TABLE tutti.warrant IS 'Which transactions may change the schema of this node, as which role: one row per statement, or for many. Never a committed row.';

CREATE OR REPLACE FUNCTION tutti.add_warrant(acting name, is_many boolean) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $tutti$
BEGIN
    INSERT INTO tutti.warrant VALUES (pg_current_xact_id(), acting, is_many);
END $tutti$;
COMMENT ON FUNCTION tutti.add_warrant IS 'Lets the next statement (or many) of this transaction change, as this role, the schema of this node. For the functions of this schema.';

-- What is CONCURRENTLY is no part of a transaction that could have a warrant: it has begun none. Its warrant is a
-- committed row of this backend's, for one command only, that the gateway takes back when that has ended.
CREATE UNLOGGED TABLE IF NOT EXISTS tutti.lone_warrant (
    backend int NOT NULL,
    began timestamptz NOT NULL,
    role name NOT NULL,
    command text NOT NULL
);
COMMENT ON TABLE tutti.lone_warrant IS 'Which backends may run a command that commits by itself, as which role. Rows of backends that are gone mean nothing.';

CREATE OR REPLACE FUNCTION tutti.lone_backend(OUT backend int, OUT began timestamptz)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $tutti$
    SELECT a.pid, a.backend_start FROM pg_stat_get_activity(pg_backend_pid()) a
$tutti$;
COMMENT ON FUNCTION tutti.lone_backend IS 'This backend, and no later one of its number. For the functions of this schema.';

CREATE OR REPLACE FUNCTION tutti.use_lone_warrant(acting name, running text) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $tutti$
DECLARE
    this record;
BEGIN
    IF running NOT IN ('CREATE INDEX', 'DROP INDEX') OR NOT EXISTS (SELECT FROM tutti.lone_warrant w WHERE w.command = running) THEN
        RETURN false;
    END IF;
    SELECT b.backend, b.began INTO this FROM tutti.lone_backend() b;
    IF NOT EXISTS (SELECT FROM tutti.lone_warrant w WHERE w.backend = this.backend AND w.began = this.began
        AND w.role = acting AND w.command = running) THEN
        RETURN false;
    END IF;
    -- DROP INDEX CONCURRENTLY must not be preceded by a write; and it runs no code that could use the warrant again.
    IF running = 'CREATE INDEX' THEN
        DELETE FROM tutti.lone_warrant w WHERE w.backend = this.backend AND w.began = this.began;
    END IF;
    RETURN true;
END $tutti$;
COMMENT ON FUNCTION tutti.use_lone_warrant IS 'Whether this backend has a warrant as this role for a command that commits by itself; that of CREATE INDEX is used up with it.';

CREATE OR REPLACE FUNCTION tutti.give_warrant(given text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $tutti$
BEGIN
    IF substr(given, length(given) - 63)
        = tutti.seal_of(concat(pg_backend_pid(), ' warrant ', left(given, -65))) THEN
        IF left(given, 4) IN ('make', 'drop') THEN
            DELETE FROM tutti.lone_warrant w
                WHERE NOT EXISTS (SELECT FROM pg_stat_get_activity(NULL) a WHERE a.pid = w.backend AND a.backend_start = w.began);
            INSERT INTO tutti.lone_warrant
                SELECT b.backend, b.began, CASE current_setting('role') WHEN 'none' THEN session_user
                    ELSE current_setting('role') END, CASE left(given, 4) WHEN 'make' THEN 'CREATE INDEX' ELSE 'DROP INDEX' END
                FROM tutti.lone_backend() b;
            RETURN;
        END IF;
        PERFORM tutti.add_warrant(CASE current_setting('role') WHEN 'none' THEN session_user
            ELSE current_setting('role') END, left(given, 4) = 'many');
    ELSE
        RAISE insufficient_privilege USING MESSAGE = 'only a gateway can let a statement change this node''s schema';
    END IF;
END $tutti$;
COMMENT ON FUNCTION tutti.give_warrant IS 'The same, for a gateway, as who the session is: a word (once, many; make, drop for what commits by itself), a number that is used once, and a seal for this backend.';

CREATE OR REPLACE FUNCTION tutti.use_warrant(acting name) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $tutti$
DECLARE
    used tid;
    lasts boolean;
BEGIN
    SELECT w.ctid, w.is_many INTO used, lasts FROM tutti.warrant w
        WHERE w.transaction = pg_current_xact_id() AND w.role = acting ORDER BY w.is_many LIMIT 1;
    IF NOT lasts THEN
        DELETE FROM tutti.warrant w WHERE w.ctid = used;
    END IF;
    RETURN used IS NOT NULL;
END $tutti$;
COMMENT ON FUNCTION tutti.use_warrant IS 'Whether this transaction has a warrant as this role, which is used up with that: code that calls it takes it from the statement that it was for.';

CREATE OR REPLACE FUNCTION tutti.end_warrants() RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $tutti$
BEGIN
    DELETE FROM tutti.warrant w WHERE w.transaction = pg_current_xact_id();
    IF EXISTS (SELECT FROM tutti.lone_warrant) THEN
        DELETE FROM tutti.lone_warrant w USING tutti.lone_backend() b WHERE w.backend = b.backend AND w.began = b.began;
    END IF;
END $tutti$;
COMMENT ON FUNCTION tutti.end_warrants IS 'Takes back what this transaction, or this backend, has not used.';

CREATE OR REPLACE FUNCTION tutti.guard_schema() RETURNS event_trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $tutti$
BEGIN
    -- Used up before any code of the statement runs. What runs ahead of it, where constants of users' types are read,
    -- may have used it: then the statement has none, and nothing of all this comes to be. Code that runs as somebody
    -- else has no use for it.
    IF (SELECT r.rolsuper FROM pg_roles r WHERE r.rolname = current_user) THEN
        RETURN;
    -- Before the other, which writes.
    ELSIF tutti.use_lone_warrant(current_user, tg_tag) THEN
        RETURN;
    ELSIF NOT tutti.use_warrant(current_user) THEN
        RAISE insufficient_privilege USING
            MESSAGE = format('%s: code cannot change the schema of a node other than node 1', lower(tg_tag)),
            DETAIL = 'It ran on such a node, or somebody is connected to the node itself. Nodes have one schema, which statements of clients change.',
            HINT = 'Send the statement through the gateway, outside of functions.';
    END IF;
END $tutti$;
COMMENT ON FUNCTION tutti.guard_schema IS 'Refuses changes of the schema that the gateway does not know of.';

-- Node 1 is asked what code has done there (tutti.touched), and its catalogs count.
CREATE OR REPLACE FUNCTION tutti.set_guard() RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET row_security = on AS $tutti$
BEGIN
    IF NOT EXISTS (SELECT FROM tutti.cluster c WHERE c.node > 1)
        OR EXISTS (SELECT FROM pg_event_trigger e WHERE e.evtname = 'tutti_guard')
        -- Nobody else can make one.
        OR NOT EXISTS (SELECT FROM pg_roles r WHERE r.rolname = current_user AND r.rolsuper) THEN
        RETURN;
    END IF;
    CREATE EVENT TRIGGER tutti_guard ON ddl_command_start EXECUTE FUNCTION tutti.guard_schema();
    -- Also where triggers are off because rows move.
    ALTER EVENT TRIGGER tutti_guard ENABLE ALWAYS;
END $tutti$;
COMMENT ON FUNCTION tutti.set_guard IS 'Guards the schema of this node, if it is not node 1.';
