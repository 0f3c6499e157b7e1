-- Who changes the schema of a node other than node 1. Part of the schema tutti.
--
-- What clients may make, they make through the gateway, on all nodes that are to have it. Code that runs on one of the
-- other nodes (a function that is declared 'row' or 'replicated', a trigger, a policy) has the same rights there, and
-- would make things that node 1 does not have: names that mean something else there to whoever comes next. So an event
-- trigger on those nodes refuses all that comes without a permit, which the gateway sends ahead of a statement that it
-- repeats there. Superusers need none: what makes definitions runs as one, and code of theirs can do anything.

CREATE OR REPLACE FUNCTION tutti.permit(is_many boolean) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $tutti$
DECLARE
    permit text := concat(CASE WHEN is_many THEN 'many ' ELSE 'once ' END, gen_random_uuid());
BEGIN
    RETURN concat(permit, ' ', tutti.seal_of(concat(pg_backend_pid(), ' permit ', permit)));
END $tutti$;
COMMENT ON FUNCTION tutti.permit IS 'What lets one statement (or many) change the schema of this node: a word, a number that is used once, and a seal. For the functions of this schema; gateways make their own.';

CREATE OR REPLACE FUNCTION tutti.is_permitted(permit text) RETURNS boolean
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $tutti$
BEGIN
    RETURN substr(permit, length(permit) - 63)
        = tutti.seal_of(concat(pg_backend_pid(), ' permit ', left(permit, -65)));
END $tutti$;
COMMENT ON FUNCTION tutti.is_permitted IS 'Whether a gateway has made this permit for this backend.';

CREATE OR REPLACE FUNCTION tutti.guard_schema() RETURNS event_trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $tutti$
DECLARE
    permit text := coalesce(current_setting('tutti.may_change', true), '');
BEGIN
    IF (SELECT r.rolsuper FROM pg_roles r WHERE r.rolname = current_user) THEN
        RETURN;
    END IF;
    IF permit = '' OR tutti.is_permitted(permit) IS NOT TRUE THEN
        RAISE insufficient_privilege USING
            MESSAGE = format('%s: code cannot change the schema of a node other than node 1', lower(tg_tag)),
            DETAIL = 'It ran on such a node, or somebody is connected to the node itself. Nodes have one schema, which statements of clients change.',
            HINT = 'Send the statement through the gateway, outside of functions.';
    END IF;
    -- Before any code runs that could see it: it is good for one statement, not for what the statement calls.
    IF left(permit, 4) <> 'many' THEN
        PERFORM set_config('tutti.may_change', '', true);
    END IF;
END $tutti$;
COMMENT ON FUNCTION tutti.guard_schema IS 'Refuses changes of the schema that the gateway does not know of.';

-- Node 1 is asked what code has done there (tutti.touched), and its catalogs count.
CREATE OR REPLACE FUNCTION tutti.set_guard() RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET row_security = on AS $tutti$
BEGIN
    IF NOT EXISTS (SELECT FROM tutti.cluster c WHERE c.node > 1)
        OR EXISTS (SELECT FROM pg_event_trigger e WHERE e.evtname = 'tutti_guard') THEN
        RETURN;
    END IF;
    CREATE EVENT TRIGGER tutti_guard ON ddl_command_start EXECUTE FUNCTION tutti.guard_schema();
    -- Also where triggers are off because rows move.
    ALTER EVENT TRIGGER tutti_guard ENABLE ALWAYS;
END $tutti$;
COMMENT ON FUNCTION tutti.set_guard IS 'Guards the schema of this node, if it is not node 1.';
