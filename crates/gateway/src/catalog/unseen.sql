-- What a transaction has touched on this node, asked around code that the gateway does not see, and
-- what has been declared of functions. See crates/gateway/src/executor/unseen.rs.

CREATE OR REPLACE FUNCTION tutti.held(all_tables boolean)
    RETURNS TABLE (relation oid, kind text, locked boolean, writes boolean, scans bigint, changes bigint)
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $tutti$
    SELECT p.relation, p.kind, l.relation IS NOT NULL, coalesce(l.writes, false),
        -- Scans by ctid and samples are no scans to the counters, but they read pages.
        pg_stat_get_xact_numscans(p.relation) + pg_stat_get_xact_blocks_fetched(p.relation)
            + coalesce((SELECT sum(
            pg_stat_get_xact_numscans(i.indexrelid))::bigint FROM pg_index i
            WHERE i.indrelid = p.relation), 0),
        pg_stat_get_xact_tuples_inserted(p.relation) + pg_stat_get_xact_tuples_updated(p.relation)
            + pg_stat_get_xact_tuples_deleted(p.relation)
    FROM tutti.placement p LEFT JOIN (
        SELECT k.relation, bool_or(k.mode NOT IN ('AccessShareLock', 'RowShareLock')) AS writes
        FROM pg_locks k WHERE k.pid = pg_backend_pid() AND k.locktype = 'relation'
            AND k.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
        GROUP BY k.relation) AS l ON l.relation = p.relation
    WHERE p.kind <> 'home' AND (all_tables OR l.relation IS NOT NULL)
$tutti$;
COMMENT ON FUNCTION tutti.held IS 'Tables of which other nodes have a part, that this transaction has locked (or all): how, and what it has counted in them.';

CREATE OR REPLACE FUNCTION tutti.schema_counts() RETURNS jsonb
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $tutti$
    SELECT jsonb_object_agg(c, jsonb_build_array(pg_stat_get_xact_tuples_inserted(c),
        pg_stat_get_xact_tuples_updated(c), pg_stat_get_xact_tuples_deleted(c)))
    FROM unnest('{pg_class,pg_type,pg_proc,pg_namespace,pg_constraint,pg_trigger,pg_policy,pg_operator,pg_cast,pg_rewrite,pg_attrdef,pg_attribute,pg_enum,pg_authid,pg_auth_members,pg_db_role_setting,pg_event_trigger,pg_extension,pg_index,pg_inherits,pg_sequence,pg_aggregate,pg_opclass,pg_range}'::regclass[]) AS c
$tutti$;
COMMENT ON FUNCTION tutti.schema_counts IS 'How many rows of the system catalogs this transaction has inserted, updated and deleted, and those before it that have not been reported yet.';

CREATE OR REPLACE FUNCTION tutti.settings_now(names text[]) RETURNS jsonb
LANGUAGE sql AS $tutti$
    SELECT pg_catalog.jsonb_object_agg(s.name, s.value) FROM (
        SELECT p.name, p.setting FROM pg_catalog.pg_settings p
        WHERE p.source OPERATOR(pg_catalog.=) 'session' AND p.name OPERATOR(pg_catalog.<>) ALL (
            '{transaction_isolation,transaction_read_only,transaction_deferrable}'::pg_catalog.text[])
        UNION SELECT n, pg_catalog.current_setting(n, true)
        FROM pg_catalog.unnest(names OPERATOR(pg_catalog.||)
            '{session_authorization,role}'::pg_catalog.text[]) AS n
        WHERE pg_catalog.current_setting(n, true) IS NOT NULL) AS s (name, value)
$tutti$;
COMMENT ON FUNCTION tutti.settings_now IS 'What is set in this session, and the settings of these names. Sets no search path of its own, which it would then show.';

CREATE OR REPLACE FUNCTION tutti.other_tables() RETURNS jsonb
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $tutti$
    SELECT coalesce(jsonb_object_agg(k.relation::text, true), '{}') FROM pg_locks k
    JOIN pg_class c ON c.oid = k.relation AND c.relkind IN ('r', 'p', 'm', 'f')
    WHERE k.pid = pg_backend_pid() AND k.locktype = 'relation' AND k.relation >= 16384
        AND k.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
        AND c.relnamespace <> 'tutti'::regnamespace AND c.relpersistence <> 't'
        AND NOT EXISTS (SELECT FROM tutti.placement p
            WHERE p.relation = k.relation AND p.kind <> 'home')
$tutti$;
COMMENT ON FUNCTION tutti.other_tables IS 'Tables of this node alone that this transaction has locked.';

CREATE OR REPLACE FUNCTION tutti.mark(all_tables boolean, names text[]) RETURNS void
LANGUAGE plpgsql AS $tutti$
BEGIN
    PERFORM pg_catalog.set_config('tutti.mark', pg_catalog.jsonb_build_object(
        'tables', (SELECT pg_catalog.jsonb_object_agg(h.relation::pg_catalog.text,
            pg_catalog.to_jsonb(h)) FROM tutti.held(all_tables) AS h),
        'others', tutti.other_tables(),
        'schema', tutti.schema_counts(),
        'settings', CASE WHEN names IS NOT NULL THEN tutti.settings_now(names) END
        )::pg_catalog.text, true);
END $tutti$;
COMMENT ON FUNCTION tutti.mark IS 'Remembers, for tutti.touched, what this transaction has touched so far.';

CREATE OR REPLACE FUNCTION tutti.compare(before jsonb, all_tables boolean, at_one_moment boolean,
    settings jsonb) RETURNS TABLE (what text, name text, value text)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $tutti$
#variable_conflict use_column
DECLARE
    counted jsonb;
BEGIN
    RETURN QUERY SELECT CASE WHEN t.is_written THEN 'writes' ELSE 'reads' END,
        coalesce(format('%I.%I', n.nspname, c.relname), t.relation::text), t.kind
    FROM (
        SELECT h.relation, h.kind,
            (h.locked AND (b IS NULL OR NOT (b ->> 'locked')::boolean))
                OR h.scans > (b ->> 'scans')::bigint OR h.changes > (b ->> 'changes')::bigint
                OR (h.writes AND (b IS NULL OR NOT (b ->> 'writes')::boolean)) AS is_touched,
            (h.writes AND (b IS NULL OR NOT (b ->> 'writes')::boolean))
                OR coalesce(h.changes > (b ->> 'changes')::bigint, false) AS is_written
        FROM tutti.held(all_tables) AS h
        CROSS JOIN LATERAL (SELECT before -> 'tables' -> (h.relation::text)) AS m (b)
        ) AS t
    LEFT JOIN pg_class c ON c.oid = t.relation LEFT JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE t.is_touched AND (t.kind <> 'replicated' OR t.is_written OR at_one_moment);
    IF at_one_moment THEN
        RETURN QUERY SELECT 'reads', o.relation::oid::regclass::text, 'home'
        FROM jsonb_object_keys(tutti.other_tables()) AS o (relation)
        WHERE NOT coalesce(before -> 'others' ? o.relation, false);
    END IF;
    SELECT jsonb_object_agg(a.key, jsonb_build_array(
            (a.value ->> 0)::bigint - coalesce((before -> 'schema' -> a.key ->> 0)::bigint, 0),
            (a.value ->> 1)::bigint - coalesce((before -> 'schema' -> a.key ->> 1)::bigint, 0),
            (a.value ->> 2)::bigint - coalesce((before -> 'schema' -> a.key ->> 2)::bigint, 0)))
        INTO counted FROM jsonb_each(tutti.schema_counts()) AS a
        WHERE a.value <> coalesce(before -> 'schema' -> a.key, '[0, 0, 0]');
    IF counted IS NOT NULL THEN
        RETURN QUERY SELECT 'schema', a.key, a.value::text FROM jsonb_each(counted) AS a;
        RETURN QUERY SELECT 'shared', w.words, ''::text FROM (VALUES
            ('a role, or what a role begins with', counted ?| '{pg_authid,pg_auth_members,pg_db_role_setting}'),
            ('a function that was there before', (counted -> 'pg_proc' ->> 1)::bigint > 0
                OR (counted -> 'pg_proc' ->> 2)::bigint > 0),
            ('a type that was there before', (counted -> 'pg_type' ->> 1)::bigint > 0
                OR (counted ? 'pg_enum' AND NOT counted ? 'pg_type'))
            ) AS w (words, is_so) WHERE w.is_so;
        RETURN QUERY SELECT 'temporary', ''::text, ''::text WHERE pg_my_temp_schema() <> 0;
    END IF;
    RETURN QUERY SELECT 'setting', s.key, s.value FROM jsonb_each_text(settings) AS s
    WHERE s.value IS DISTINCT FROM before -> 'settings' ->> s.key;
END $tutti$;
COMMENT ON FUNCTION tutti.compare IS 'The part of tutti.touched that needs a search path of its own.';

CREATE OR REPLACE FUNCTION tutti.touched(all_tables boolean, at_one_moment boolean, names text[])
    RETURNS TABLE (what text, name text, value text)
LANGUAGE sql AS $tutti$
    SELECT * FROM tutti.compare(pg_catalog.current_setting('tutti.mark')::pg_catalog.jsonb,
        all_tables, at_one_moment,
        CASE WHEN names IS NOT NULL THEN tutti.settings_now(names) END)
$tutti$;
COMMENT ON FUNCTION tutti.touched IS 'What this transaction has done since tutti.mark that code on one node must not do: tables read or written of which this node has a part or a copy only, changes of the schema, and settings that differ.';

CREATE OR REPLACE FUNCTION tutti.declare(named text, new_kind text) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $tutti$
DECLARE
    found record;
    acting name := CASE current_setting('role') WHEN 'none' THEN session_user
        ELSE current_setting('role') END;
BEGIN
    SELECT p.oid, p.proowner INTO found FROM pg_proc p WHERE p.oid = named::oid;
    IF found.oid IS NULL THEN
        RAISE undefined_function USING MESSAGE = 'there is no such function';
    END IF;
    IF NOT pg_has_role(acting, found.proowner, 'USAGE') THEN
        RAISE insufficient_privilege
            USING MESSAGE = format('must be owner of function %s', found.oid::regproc);
    END IF;
    DELETE FROM tutti.declaration d WHERE d.routine = found.oid;
    IF new_kind IS NOT NULL THEN
        INSERT INTO tutti.declaration (routine, kind) VALUES (found.oid, new_kind);
    END IF;
    RETURN found.oid::regprocedure::text;
END $tutti$;
COMMENT ON FUNCTION tutti.declare IS 'Says where a function, given by its number, may run; NULL takes it back. The role must be its owner.';

CREATE OR REPLACE FUNCTION tutti.temporary_code() RETURNS SETOF name
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $tutti$
DECLARE
    own oid := pg_my_temp_schema();
BEGIN
    IF own = 0 THEN
        RETURN;
    END IF;
    RETURN QUERY WITH RECURSIVE type_with_code AS (
        SELECT t.oid, t.typname, t.typarray FROM pg_type t LEFT JOIN pg_class c ON c.oid = t.typrelid
        WHERE t.typnamespace = own AND (t.typtype IN ('d', 'r', 'm')
            OR (t.typtype = 'c' AND c.relkind = 'c'))
    ), with_code AS (
        SELECT c.oid, c.relname FROM pg_class c WHERE c.relnamespace = own AND (
            c.relkind = 'v' OR c.relhasrules
            OR EXISTS (SELECT FROM pg_trigger t WHERE t.tgrelid = c.oid AND NOT t.tgisinternal)
            OR EXISTS (SELECT FROM pg_attribute a JOIN type_with_code t
                ON a.atttypid IN (t.oid, t.typarray) WHERE a.attrelid = c.oid)
            OR EXISTS (SELECT FROM pg_depend d WHERE d.refclassid = 'pg_class'::regclass
                AND d.refobjid = c.oid AND d.classid = ANY (ARRAY['pg_attrdef', 'pg_constraint',
                    'pg_class']::regclass[]::oid[])
                AND EXISTS (SELECT FROM pg_depend u WHERE u.classid = d.classid
                    AND u.objid = d.objid AND u.refobjid >= 16384
                    AND u.refclassid = ANY (ARRAY['pg_proc', 'pg_operator']::regclass[]::oid[]))))
        -- Whoever reads or writes a parent, does so with its children.
        UNION SELECT p.oid, p.relname FROM with_code w
        JOIN pg_inherits h ON h.inhrelid = w.oid JOIN pg_class p ON p.oid = h.inhparent
    )
    SELECT w.relname FROM with_code w UNION SELECT t.typname FROM type_with_code t
    UNION SELECT p.proname FROM pg_proc p WHERE p.pronamespace = own
    UNION SELECT 'operator' FROM pg_operator o WHERE o.oprnamespace = own
    ORDER BY 1;
END $tutti$;
COMMENT ON FUNCTION tutti.temporary_code IS 'Names by which a statement may run code of this session''s temporary objects.';
