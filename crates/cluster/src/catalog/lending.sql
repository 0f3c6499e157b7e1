-- What node 1 needs to fill a materialized view of which other nodes have rows. Part of the schema tutti. See
-- crates/gateway/src/executor/lending.rs.
--
-- PostgreSQL fills such a view by its own query over its own tables. A table shows the rows of its children, so until
-- the view is filled each table has a child that is in no other transaction's sight, with the rows of the other nodes.

CREATE TABLE IF NOT EXISTS tutti.filled (
    view oid PRIMARY KEY,
    times bigint NOT NULL
);
COMMENT ON TABLE tutti.filled IS 'How often each materialized view was refreshed from rows of several nodes. Whoever refreshes one locks its row here: with a snapshot from before another''s he would show what was, and fails instead.';

-- Under no search path of users' every name in the query is qualified.
CREATE OR REPLACE FUNCTION tutti.materialized_view(schema_name text, view_name text, OUT number oid, OUT definition text,
    OUT may_refresh boolean, OUT is_populated boolean)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET quote_all_identifiers = off AS $tutti$
BEGIN
    SELECT c.oid, pg_has_role(c.relowner, 'USAGE'), c.relispopulated INTO number, may_refresh, is_populated
        FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE n.nspname = schema_name AND c.relname = view_name AND c.relkind = 'm';
    -- That locks the view and what it reads, before the REFRESH of which another may have to wait for this; undone, it
    -- does not.
    BEGIN
        definition := pg_get_viewdef(number);
        RAISE SQLSTATE 'TU000';
    EXCEPTION WHEN SQLSTATE 'TU000' THEN
        NULL;
    END;
END $tutti$;
COMMENT ON FUNCTION tutti.materialized_view IS 'The query of a materialized view, and whether who asks may have it run.';

-- Makes the children, one for each table and each of its own children that are there. `views`: the view that is filled,
-- if it is there, and the views through which its query reads. `kept`: tables that nobody else may change until the
-- transaction ends. Numbers, with commas between them.
CREATE OR REPLACE FUNCTION tutti.lend(tables text, views text, kept text, refreshed text, seal text)
    RETURNS TABLE (in_schema text, called text, child text, columns text[])
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET client_min_messages = error
SET default_tablespace = '' SET default_table_access_method = heap AS $tutti$
DECLARE
    acting name := CASE current_setting('role') WHEN 'none' THEN session_user ELSE current_setting('role') END;
    relation oid;
    found text;
    member record;
    new_child text;
BEGIN
    IF tutti.is_sealed(format('lend %s %s %s %s', tables, views, kept, refreshed), seal) IS NOT TRUE THEN
        RAISE insufficient_privilege USING MESSAGE = 'only a gateway can lend rows';
    END IF;
    -- A REFRESH does not come here then.
    IF current_setting('transaction_read_only') = 'on' THEN
        RAISE read_only_sql_transaction
            USING MESSAGE = 'cannot execute CREATE MATERIALIZED VIEW in a read-only transaction';
    END IF;
    IF refreshed <> '' THEN
        BEGIN
            DELETE FROM tutti.filled f WHERE NOT EXISTS (SELECT FROM pg_class c WHERE c.oid = f.view)
                AND f.view <> refreshed::oid;
            INSERT INTO tutti.filled AS f (view, times) VALUES (refreshed::oid, 1)
                ON CONFLICT (view) DO UPDATE SET times = f.times + 1;
        EXCEPTION WHEN serialization_failure THEN
            RAISE serialization_failure
                USING MESSAGE = 'could not read a table that was rewritten behind the snapshot';
        END;
    END IF;
    -- In one order, whatever the query says.
    FOR relation IN SELECT u.oid FROM unnest(string_to_array(kept, ',')::oid[]) AS u (oid) ORDER BY 1 LOOP
        found := relation::regclass::text;
        EXECUTE format('LOCK TABLE %s IN SHARE ROW EXCLUSIVE MODE', found);
        IF to_regclass(found) IS DISTINCT FROM relation::regclass THEN
            RAISE serialization_failure USING MESSAGE = format('table %s was changed meanwhile', found);
        END IF;
    END LOOP;
    FOR relation IN SELECT u.oid FROM unnest(string_to_array(tables, ',')::oid[]) AS u (oid) ORDER BY 1 LOOP
        found := relation::regclass::text;
        IF NOT has_table_privilege(acting, relation, 'SELECT') THEN
            RAISE insufficient_privilege USING
                MESSAGE = format('permission denied for table %s', (SELECT c.relname FROM pg_class c WHERE c.oid = relation)),
                DETAIL = 'Its rows are on several nodes, and whoever fills a materialized view from them must be able to read the whole table.',
                HINT = format('GRANT SELECT ON TABLE %s to role %I, or refresh the view as another role.', found, acting);
        END IF;
        EXECUTE format('LOCK TABLE %s IN SHARE UPDATE EXCLUSIVE MODE', found);
        IF to_regclass(found) IS DISTINCT FROM relation::regclass THEN
            RAISE serialization_failure USING MESSAGE = format('table %s was changed meanwhile', found);
        END IF;
        FOR member IN
            WITH RECURSIVE family (oid) AS (
                SELECT relation UNION SELECT h.inhrelid FROM family f JOIN pg_inherits h ON h.inhparent = f.oid
            )
            SELECT c.oid, n.nspname, c.relname, c.relkind, c.relispartition, c.relowner, r.rolname AS owner,
                c.relrowsecurity, c.relforcerowsecurity,
                (SELECT coalesce(array_agg(a.attname::text ORDER BY a.attnum), '{}') FROM pg_attribute a
                    WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = '') AS columns
            FROM family f JOIN pg_class c ON c.oid = f.oid JOIN pg_namespace n ON n.oid = c.relnamespace
            JOIN pg_roles r ON r.oid = c.relowner
            WHERE c.relpersistence <> 't'
            ORDER BY c.oid
        LOOP
            IF member.relkind <> 'r' OR member.relispartition THEN
                RAISE feature_not_supported USING
                    MESSAGE = format('a materialized view over the partitioned table "%s", which is on several nodes, is not supported',
                        (SELECT c.relname FROM pg_class c WHERE c.oid = relation)),
                    DETAIL = 'Node 1 fills the view from a table and its children, and a partitioned table can have none beside its partitions.',
                    HINT = 'Use CREATE TABLE … AS, or distribute a table that is not partitioned.';
            END IF;
            IF member.relrowsecurity AND EXISTS (
                SELECT FROM pg_roles r
                WHERE (r.rolname = acting
                        OR r.oid IN (SELECT c.relowner FROM pg_class c WHERE c.oid = ANY (string_to_array(views, ',')::oid[])))
                    AND NOT r.rolsuper AND NOT r.rolbypassrls
                    AND (member.relforcerowsecurity OR NOT pg_has_role(r.oid, member.relowner, 'USAGE')))
            THEN
                RAISE feature_not_supported USING
                    MESSAGE = format('a materialized view over "%s", whose rows row security may hide, is not supported', member.relname),
                    DETAIL = 'The table is on several nodes, and each of them would decide for its rows what the view''s owner sees.',
                    HINT = 'Let the table''s owner, or a role with BYPASSRLS, own and refresh the view.';
            END IF;
            IF tutti.runs_code(member.nspname, member.relname)
                AND EXISTS (SELECT FROM pg_roles r WHERE r.oid = member.relowner AND r.rolsuper)
                AND NOT EXISTS (SELECT FROM pg_roles r WHERE r.rolname = acting AND r.rolsuper)
            THEN
                RAISE insufficient_privilege USING
                    MESSAGE = format('rows of "%s" cannot be lent', member.relname),
                    DETAIL = 'Storing them runs code of the table''s checks, columns or types, as its owner, who is a superuser.',
                    HINT = 'Let a superuser refresh the view, or give the table to a role that is none.';
            END IF;
            new_child := format('tutti.%I', concat('lent_', replace(gen_random_uuid()::text, '-', '')));
            EXECUTE format('CREATE UNLOGGED TABLE %s () INHERITS (%I.%I)', new_child, member.nspname, member.relname);
            -- The table's checks, and code of its types, are its owner's to run.
            EXECUTE format('ALTER TABLE %s OWNER TO %I', new_child, member.owner);
            in_schema := member.nspname;
            called := member.relname;
            child := new_child;
            columns := member.columns;
            RETURN NEXT;
        END LOOP;
    END LOOP;
    -- What a statement reads that has a snapshot of its own must be stored as it was then.
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        PERFORM tutti.refuse_rewritten(string_to_array(concat_ws(',', nullif(tables, ''), nullif(refreshed, '')), ',')::oid[]);
    END IF;
END $tutti$;
COMMENT ON FUNCTION tutti.lend IS 'Gives tables children for the rows of other nodes, until tutti.take_back. The caller must be a gateway.';

CREATE OR REPLACE FUNCTION tutti.take_back(children text, seal text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET client_min_messages = error AS $tutti$
BEGIN
    IF tutti.is_sealed(format('take back %s', children), seal) IS NOT TRUE THEN
        RAISE insufficient_privilege USING MESSAGE = 'only a gateway can take back rows';
    END IF;
    EXECUTE format('DROP TABLE %s', children);
END $tutti$;
COMMENT ON FUNCTION tutti.take_back IS 'Drops the children that tutti.lend has made. The caller must be a gateway.';
