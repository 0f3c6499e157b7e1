-- What a transaction has touched on this node, asked around code that the gateway does not see, and
-- what has been declared of functions. See crates/gateway/src/executor/unseen.rs.

-- Its columns have changed once.
DROP FUNCTION IF EXISTS tutti.held(boolean);
CREATE FUNCTION tutti.held(all_tables boolean)
    RETURNS TABLE (relation oid, kind text, modes text[], scans bigint, changes bigint)
LANGUAGE sql SET search_path = pg_catalog, pg_temp SET row_security = on AS $tutti$
    SELECT * FROM (SELECT p.relation, p.kind, l.modes,
        -- Scans by ctid and samples are no scans to the counters, but they read pages.
        pg_stat_get_xact_numscans(p.relation) + pg_stat_get_xact_blocks_fetched(p.relation)
            + coalesce((SELECT sum(
            pg_stat_get_xact_numscans(i.indexrelid))::bigint FROM pg_index i
            WHERE i.indrelid = p.relation), 0) AS scans,
        pg_stat_get_xact_tuples_inserted(p.relation) + pg_stat_get_xact_tuples_updated(p.relation)
            + pg_stat_get_xact_tuples_deleted(p.relation) AS changes
    FROM (SELECT a.relation, a.kind FROM tutti.placement a
        -- The cluster's views: of these each node has a part, too.
        UNION ALL SELECT v.oid, 'round_robin' FROM pg_class v WHERE v.relnamespace = 'tutti'::regnamespace
            AND v.relkind = 'v' AND v.relname NOT IN ('placements', 'this_node')) AS p
    LEFT JOIN (
        SELECT k.relation, array_agg(DISTINCT k.mode) AS modes
        FROM pg_locks k WHERE k.pid = pg_backend_pid() AND k.locktype = 'relation'
            AND k.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
        GROUP BY k.relation) AS l ON l.relation = p.relation
    WHERE p.kind <> 'home' AND (all_tables OR l.relation IS NOT NULL)) AS t
    WHERE t.modes IS NOT NULL OR t.scans > 0 OR t.changes > 0
$tutti$;
COMMENT ON FUNCTION tutti.held IS 'Tables of which other nodes have a part, that this transaction has locked (or all of which anything is known): how, and what it has counted in them.';

CREATE OR REPLACE FUNCTION tutti.schema_counts() RETURNS jsonb
LANGUAGE sql SET search_path = pg_catalog, pg_temp SET row_security = on AS $tutti$
    SELECT jsonb_object_agg(c, jsonb_build_array(pg_stat_get_xact_tuples_inserted(c),
        pg_stat_get_xact_tuples_updated(c), pg_stat_get_xact_tuples_deleted(c)))
    FROM unnest('{pg_class,pg_type,pg_proc,pg_namespace,pg_constraint,pg_trigger,pg_policy,pg_operator,pg_cast,pg_collation,pg_rewrite,pg_attrdef,pg_attribute,pg_enum,pg_authid,pg_auth_members,pg_db_role_setting,pg_event_trigger,pg_extension,pg_index,pg_inherits,pg_sequence,pg_aggregate,pg_opclass,pg_opfamily,pg_amop,pg_amproc,pg_ts_config,pg_ts_config_map,pg_ts_dict,pg_ts_parser,pg_ts_template,pg_range,pg_default_acl,pg_database,pg_language,pg_parameter_acl}'::regclass[]) AS c
$tutti$;
COMMENT ON FUNCTION tutti.schema_counts IS 'How many rows of the system catalogs this transaction has inserted, updated and deleted, and those before it that have not been reported yet.';

CREATE OR REPLACE FUNCTION tutti.shared_definitions()
    RETURNS TABLE (relation oid, digest text, is_own boolean)
LANGUAGE sql SET search_path = pg_catalog, pg_temp SET row_security = on AS $tutti$
    WITH RECURSIVE read_by AS (
        SELECT r.ev_class AS view, d.refobjid AS relation
        FROM pg_rewrite r JOIN pg_class v ON v.oid = r.ev_class AND v.relkind = 'v'
        JOIN pg_depend d ON d.classid = 'pg_rewrite'::regclass AND d.objid = r.oid
            AND d.refclassid = 'pg_class'::regclass AND d.refobjid <> r.ev_class
        WHERE r.oid >= 16384
    ), placed AS (
        SELECT p.relation FROM tutti.placement p WHERE p.kind <> 'home'
    ), of_home AS (
        SELECT b.view FROM read_by b JOIN pg_class c ON c.oid = b.relation AND c.relkind <> 'v'
        WHERE c.oid >= 16384 AND c.oid NOT IN (SELECT p.relation FROM placed p)
        UNION SELECT b.view FROM of_home o JOIN read_by b ON b.relation = o.view
    ), of_placed AS (
        SELECT b.view FROM placed p JOIN read_by b ON b.relation = p.relation
        UNION SELECT b.view FROM of_placed o JOIN read_by b ON b.relation = o.view
    ), shared AS (
        SELECT p.relation FROM placed p
        UNION SELECT v.view FROM of_placed v WHERE v.view NOT IN (SELECT h.view FROM of_home h)
        UNION SELECT i.indexrelid FROM pg_index i JOIN placed p ON p.relation = i.indrelid
        -- Sequences: owned by a column, or named by a default.
        UNION SELECT d.objid FROM pg_depend d JOIN placed p ON p.relation = d.refobjid
            JOIN pg_class s ON s.oid = d.objid AND s.relkind = 'S'
        WHERE d.classid = 'pg_class'::regclass AND d.refclassid = 'pg_class'::regclass
        UNION SELECT d.refobjid FROM pg_attrdef f JOIN placed p ON p.relation = f.adrelid
            JOIN pg_depend d ON d.classid = 'pg_attrdef'::regclass AND d.objid = f.oid
            JOIN pg_class s ON s.oid = d.refobjid AND s.relkind = 'S'
        WHERE d.refclassid = 'pg_class'::regclass
    ), part AS (
        SELECT c.oid AS relation, c.tableoid AS catalog, c.ctid AS place, c.xmin AS made
            FROM pg_class c
        UNION ALL SELECT a.attrelid, a.tableoid, a.ctid, a.xmin FROM pg_attribute a
        UNION ALL SELECT f.adrelid, f.tableoid, f.ctid, f.xmin FROM pg_attrdef f
        UNION ALL SELECT t.tgrelid, t.tableoid, t.ctid, t.xmin FROM pg_trigger t
        UNION ALL SELECT p.polrelid, p.tableoid, p.ctid, p.xmin FROM pg_policy p
        UNION ALL SELECT r.ev_class, r.tableoid, r.ctid, r.xmin FROM pg_rewrite r
        UNION ALL SELECT c.conrelid, c.tableoid, c.ctid, c.xmin FROM pg_constraint c
        UNION ALL SELECT i.indrelid, i.tableoid, i.ctid, i.xmin FROM pg_index i
        UNION ALL SELECT h.inhrelid, h.tableoid, h.ctid, h.xmin FROM pg_inherits h
        UNION ALL SELECT h.inhparent, h.tableoid, h.ctid, h.xmin FROM pg_inherits h
        UNION ALL SELECT s.stxrelid, s.tableoid, s.ctid, s.xmin FROM pg_statistic_ext s
    )
    SELECT p.relation, md5(string_agg(p.catalog || ' ' || p.place, ',' ORDER BY p.catalog, p.place)),
        -- At or behind this transaction's own number; one that committed since counts as well.
        pg_current_xact_id_if_assigned() IS NOT NULL AND bool_or(age(p.made) <= 0)
    FROM shared s JOIN part p ON p.relation = s.relation
    GROUP BY p.relation
$tutti$;
COMMENT ON FUNCTION tutti.shared_definitions IS 'Relations of which other nodes have the definition: where their rows in the system catalogs are, and whether this transaction has made some of these.';

CREATE OR REPLACE FUNCTION tutti.definitions_before() RETURNS jsonb
LANGUAGE sql SET search_path = pg_catalog, pg_temp SET row_security = on AS $tutti$
    SELECT CASE WHEN EXISTS (
            -- Under such a lock parts can be dropped, which leaves no row and takes no other lock.
            SELECT FROM tutti.held(false) AS h WHERE h.modes && '{ShareUpdateExclusiveLock,ShareRowExclusiveLock,ExclusiveLock,AccessExclusiveLock}'
        ) OR (pg_current_xact_id_if_assigned() IS NOT NULL AND EXISTS (
            SELECT FROM jsonb_each(tutti.schema_counts()) AS c WHERE c.value <> '[0, 0, 0]'))
        THEN (SELECT jsonb_object_agg(d.relation::text, d.digest)
            FROM tutti.shared_definitions() AS d)
    END
$tutti$;
COMMENT ON FUNCTION tutti.definitions_before IS 'Digests of tutti.shared_definitions, if this transaction may have changed any of these.';

CREATE OR REPLACE FUNCTION tutti.objects_before() RETURNS jsonb
LANGUAGE sql SET search_path = pg_catalog, pg_temp SET row_security = on AS $tutti$
    SELECT jsonb_build_object(
        'operators', (SELECT jsonb_object_agg(o.oid::text, concat_ws(' ', o.oprname, o.oprnamespace, o.oprowner))
            FROM pg_operator o WHERE o.oid >= 16384),
        'domains', (SELECT jsonb_object_agg(k.oid::text, k.ctid::text)
            FROM pg_constraint k WHERE k.contypid >= 16384),
        -- Others are known by what has made them.
        'types', CASE WHEN pg_stat_get_xact_tuples_inserted('pg_type'::regclass) > 0
            THEN (SELECT jsonb_agg(t.oid::text) FROM pg_type t
                WHERE t.oid >= 16384 AND t.typtype IN ('d', 'c') AND tutti.is_own(t.xmin)) END)
$tutti$;
COMMENT ON FUNCTION tutti.objects_before IS 'Operators, checks of domains, and types that this transaction has made: what else could not be told to have been there before.';

CREATE OR REPLACE FUNCTION tutti.settings_now(names text[]) RETURNS jsonb
LANGUAGE sql AS $tutti$
    SELECT pg_catalog.jsonb_object_agg(s.name, s.value) FROM (
        SELECT p.name, p.setting FROM pg_catalog.pg_settings p
        WHERE p.source OPERATOR(pg_catalog.=) 'session' AND p.name OPERATOR(pg_catalog.<>) ALL (
            -- The last is set to hide what the gateway sends.
            '{transaction_isolation,transaction_read_only,transaction_deferrable,log_parameter_max_length_on_error}'::pg_catalog.text[])
        UNION SELECT n, pg_catalog.current_setting(n, true)
        FROM pg_catalog.unnest(names OPERATOR(pg_catalog.||)
            '{session_authorization,role}'::pg_catalog.text[]) AS n
        WHERE pg_catalog.current_setting(n, true) IS NOT NULL) AS s (name, value)
$tutti$;
COMMENT ON FUNCTION tutti.settings_now IS 'What is set in this session, and the settings of these names. Sets no search path of its own, which it would then show.';

CREATE OR REPLACE FUNCTION tutti.names_in_code() RETURNS text[]
LANGUAGE sql SET search_path = pg_catalog, pg_temp SET row_security = on AS $tutti$
    SELECT coalesce(array_agg(DISTINCT lower(m[1])), '{}')
    FROM pg_proc p, regexp_matches(p.prosrc,
        '(?:''|\mset\s+(?:local\s+|session\s+)?)([[:alpha:]_][[:alnum:]_$]*(?:\.[[:alpha:]_][[:alnum:]_$]*)+)', 'gi') AS m
    WHERE p.oid >= 16384 AND p.pronamespace <> 'tutti'::regnamespace
$tutti$;
COMMENT ON FUNCTION tutti.names_in_code IS 'Settings with a dot that functions'' texts name, where nobody has read these yet.';

CREATE OR REPLACE FUNCTION tutti.other_tables() RETURNS jsonb
LANGUAGE sql SET search_path = pg_catalog, pg_temp SET row_security = on AS $tutti$
    SELECT coalesce(jsonb_object_agg(k.relation::text, true), '{}') FROM pg_locks k
    JOIN pg_class c ON c.oid = k.relation AND c.relkind IN ('r', 'p', 'm', 'f')
    WHERE k.pid = pg_backend_pid() AND k.locktype = 'relation' AND k.relation >= 16384
        AND k.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
        AND c.relnamespace <> 'tutti'::regnamespace AND c.relpersistence <> 't'
        AND NOT EXISTS (SELECT FROM tutti.placement p
            WHERE p.relation = k.relation AND p.kind <> 'home')
$tutti$;
COMMENT ON FUNCTION tutti.other_tables IS 'Tables of this node alone that this transaction has locked.';

CREATE OR REPLACE FUNCTION tutti.count() RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $tutti$
BEGIN
    IF current_setting('track_counts') <> 'on' THEN
        PERFORM set_config('track_counts', 'on', true);
    END IF;
    PERFORM set_config('max_parallel_workers', '0', true);
END $tutti$;
COMMENT ON FUNCTION tutti.count IS 'From here to the end of the transaction, what is touched is counted, and by this process: a parallel worker takes its locks and counts with it when it ends.';

-- They knew no nonce once.
DROP FUNCTION IF EXISTS tutti.mark(boolean, text[]);
DROP FUNCTION IF EXISTS tutti.touched(boolean, boolean, text[]);

CREATE OR REPLACE FUNCTION tutti.proof(noted text, nonce text) RETURNS text
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $tutti$
BEGIN
    RETURN encode(sha256(sha256(convert_to(concat(nonce, ' ', noted), 'UTF8'))
        || convert_to(nonce, 'UTF8')), 'hex');
END $tutti$;
COMMENT ON FUNCTION tutti.proof IS 'What nobody can make for a text who does not know the nonce.';

CREATE OR REPLACE FUNCTION tutti.mark(all_tables boolean, names text[], nonce text) RETURNS void
LANGUAGE plpgsql AS $tutti$
DECLARE
    workers pg_catalog.text := pg_catalog.current_setting('max_parallel_workers');
    noted pg_catalog.text;
BEGIN
    PERFORM tutti.count();
    noted := pg_catalog.jsonb_build_object(
        'tables', (SELECT pg_catalog.jsonb_object_agg(h.relation::pg_catalog.text,
            pg_catalog.to_jsonb(h)) FROM tutti.held(all_tables) AS h),
        'workers', workers,
        'others', tutti.other_tables(),
        'schema', tutti.schema_counts(),
        'definitions', tutti.definitions_before(),
        'objects', tutti.objects_before(),
        'schemas', (SELECT pg_catalog.jsonb_object_agg(n.oid::pg_catalog.text, n.ctid::pg_catalog.text)
            FROM pg_catalog.pg_namespace n),
        'settings', CASE WHEN names IS NOT NULL THEN tutti.settings_now(names) END
        )::pg_catalog.text;
    PERFORM pg_catalog.set_config('tutti.mark',
        pg_catalog.concat(tutti.proof(noted, nonce), ' ', noted), true);
END $tutti$;
COMMENT ON FUNCTION tutti.mark IS 'Remembers, for tutti.touched, what this transaction has touched so far. Who does not know the nonce, which only the gateway does, cannot overwrite it unseen.';

CREATE OR REPLACE FUNCTION tutti.marked(nonce text) RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $tutti$
DECLARE
    mark text := current_setting('tutti.mark', true);
    noted text := substr(mark, 66);
BEGIN
    IF left(mark, 64) IS DISTINCT FROM tutti.proof(noted, nonce) THEN
        RAISE feature_not_supported USING
            MESSAGE = 'what this statement has touched cannot be told',
            DETAIL = 'Code that it ran has overwritten what was noted before it.',
            HINT = 'Nothing was done. Leave names that begin with "tutti." alone in functions.';
    END IF;
    RETURN noted::jsonb;
END $tutti$;
COMMENT ON FUNCTION tutti.marked IS 'What tutti.mark has noted under this nonce, if it is still that.';

CREATE OR REPLACE FUNCTION tutti.deferred() RETURNS text
LANGUAGE sql SET search_path = pg_catalog, pg_temp SET row_security = on AS $tutti$
    -- All or none: they run in the order in which they were queued.
    SELECT CASE WHEN bool_or(NOT EXISTS (SELECT FROM tutti.declaration d WHERE d.routine = t.tgfoid))
        THEN string_agg(DISTINCT format('%I.%I', n.nspname, c.conname), ', ') END
    FROM pg_trigger t JOIN pg_constraint c ON c.oid = t.tgconstraint
    JOIN pg_namespace n ON n.oid = c.connamespace
    WHERE t.tgdeferrable AND NOT t.tgisinternal AND t.tgenabled <> 'D'
        -- Of what the transaction has not written, none waits; and it may be in a schema of somebody else's.
        AND pg_stat_get_xact_tuples_inserted(t.tgrelid) + pg_stat_get_xact_tuples_updated(t.tgrelid)
            + pg_stat_get_xact_tuples_deleted(t.tgrelid) > 0
        AND NOT EXISTS (SELECT FROM tutti.placement p
            WHERE p.relation = t.tgrelid AND p.kind IN ('hash', 'round_robin'))
$tutti$;
COMMENT ON FUNCTION tutti.deferred IS 'Constraint triggers that may run at the end of a transaction, as SET CONSTRAINTS names them.';

CREATE OR REPLACE FUNCTION tutti.deferred_checks() RETURNS text
LANGUAGE sql SET search_path = pg_catalog, pg_temp SET row_security = on AS $tutti$
    SELECT string_agg(DISTINCT format('%I.%I', n.nspname, c.conname), ', ')
    FROM pg_constraint c JOIN pg_namespace n ON n.oid = c.connamespace
    WHERE c.condeferrable AND c.contype <> 't' AND EXISTS (SELECT FROM unnest(ARRAY[c.conrelid, c.confrelid]) AS r (relation)
        WHERE r.relation <> 0
            AND pg_stat_get_xact_tuples_inserted(r.relation) + pg_stat_get_xact_tuples_updated(r.relation)
                + pg_stat_get_xact_tuples_deleted(r.relation) > 0)
$tutti$;
COMMENT ON FUNCTION tutti.deferred_checks IS 'Keys and foreign keys that may be checked at the end of a transaction, as SET CONSTRAINTS names them.';

CREATE OR REPLACE FUNCTION tutti.compare(before jsonb, all_tables boolean, at_one_moment boolean,
    settings jsonb) RETURNS TABLE (what text, name text, value text)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET row_security = on AS $tutti$
#variable_conflict use_column
DECLARE
    counted jsonb;
BEGIN
    IF current_setting('track_counts') <> 'on' OR current_setting('max_parallel_workers') <> '0' THEN
        RAISE feature_not_supported USING
            MESSAGE = 'what this statement has touched cannot be told',
            DETAIL = 'Code that it ran has set track_counts or max_parallel_workers.',
            HINT = 'Nothing was done. Leave these settings alone in functions.';
    END IF;
    -- Whoever looks at it finds what was there.
    PERFORM set_config('max_parallel_workers', before ->> 'workers', true);
    RETURN QUERY SELECT CASE WHEN t.is_written THEN 'writes' ELSE 'reads' END,
        -- No name: it is dropped.
        CASE WHEN n.nspname IS NOT NULL THEN format('%I.%I', n.nspname, c.relname) ELSE '' END,
        t.kind
    FROM (
        SELECT h.relation, h.kind,
            (h.modes IS NOT NULL AND m.modes IS NULL)
                OR h.scans > coalesce((b ->> 'scans')::bigint, 0)
                OR h.changes > coalesce((b ->> 'changes')::bigint, 0)
                OR w.has_new AS is_touched,
            w.has_new OR h.changes > coalesce((b ->> 'changes')::bigint, 0) AS is_written
        FROM tutti.held(all_tables) AS h
        CROSS JOIN LATERAL (SELECT e, nullif(e -> 'modes', 'null')
            FROM (SELECT before -> 'tables' -> (h.relation::text)) AS x (e)) AS m (b, modes)
        CROSS JOIN LATERAL (SELECT EXISTS (SELECT FROM unnest(h.modes) AS g (mode)
            WHERE g.mode NOT IN ('AccessShareLock', 'RowShareLock', 'SIReadLock')
                AND NOT coalesce(m.modes ? g.mode, false))) AS w (has_new)
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
            ('an operator or a cast that was there before',
                (counted -> 'pg_operator' ->> 2)::bigint > 0 OR (counted -> 'pg_cast' ->> 2)::bigint > 0),
            ('a type that was there before', (counted -> 'pg_type' ->> 1)::bigint > 0
                OR (counted ? 'pg_enum' AND NOT counted ? 'pg_type')),
            ('a collation that was there before',
                (counted -> 'pg_collation' ->> 1)::bigint > 0 OR (counted -> 'pg_collation' ->> 2)::bigint > 0),
            ('an operator class or family', counted ?| '{pg_opclass,pg_opfamily,pg_amop,pg_amproc}'),
            ('what text is searched by',
                counted ?| '{pg_ts_config,pg_ts_config_map,pg_ts_dict,pg_ts_parser,pg_ts_template}')
            ) AS w (words, is_so) WHERE w.is_so;
        -- A new one changes its commutator and its negator, on every node.
        RETURN QUERY SELECT 'shared', 'an operator that was there before', ''::text
        FROM jsonb_each_text(nullif(before -> 'objects' -> 'operators', 'null')) AS b (oid, essence)
        LEFT JOIN pg_operator o ON o.oid = b.oid::oid
        WHERE counted ? 'pg_operator'
            AND b.essence IS DISTINCT FROM concat_ws(' ', o.oprname, o.oprnamespace, o.oprowner)
        LIMIT 1;
        RETURN QUERY SELECT 'shared', 'a domain that was there before', ''::text
        WHERE counted ? 'pg_constraint' AND (EXISTS (
            SELECT FROM jsonb_each_text(nullif(before -> 'objects' -> 'domains', 'null')) AS b (oid, place)
            LEFT JOIN pg_constraint k ON k.oid = b.oid::oid WHERE b.place IS DISTINCT FROM k.ctid::text
        ) OR EXISTS (
            SELECT FROM pg_constraint k JOIN pg_type t ON t.oid = k.contypid
            WHERE k.contypid >= 16384 AND NOT coalesce(before -> 'objects' -> 'domains' ? k.oid::text, false)
                AND tutti.is_own(k.xmin)
                AND (NOT tutti.is_own(t.xmin) OR coalesce(before -> 'objects' -> 'types' ? t.oid::text, false))));
        RETURN QUERY SELECT 'shared', 'a type that was there before', ''::text
        WHERE counted ?| '{pg_class,pg_attribute}' AND EXISTS (
            SELECT FROM pg_class c JOIN pg_type t ON t.oid = c.reltype
            JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0
            WHERE c.relkind = 'c' AND (tutti.is_own(c.xmin) OR tutti.is_own(a.xmin))
                AND (NOT tutti.is_own(t.xmin) OR coalesce(before -> 'objects' -> 'types' ? t.oid::text, false)));
        RETURN QUERY SELECT 'shared', 'a type that is not defined yet', ''::text
        WHERE counted ? 'pg_type' AND EXISTS (SELECT FROM pg_type t
            WHERE NOT t.typisdefined AND t.oid >= 16384 AND tutti.is_own(t.xmin));
        -- Other nodes have these too, whatever statement has changed them.
        RETURN QUERY SELECT 'definition', w.words, ''::text FROM (VALUES
            ('default privileges', counted ? 'pg_default_acl'),
            ('the privileges of a database, a language or a setting',
                counted ?| '{pg_database,pg_language,pg_parameter_acl}')
            ) AS w (words, is_so) WHERE w.is_so;
        RETURN QUERY SELECT 'definition', coalesce(format('schema "%s"', n.nspname),
            'a schema that was there before'), ''::text
        FROM jsonb_each_text(before -> 'schemas') AS s (oid, place)
        LEFT JOIN pg_namespace n ON n.oid = s.oid::oid
        WHERE counted ? 'pg_namespace' AND (n.oid IS NULL
            OR (n.ctid::text <> s.place AND age(n.xmin) <= 0));
        RETURN QUERY SELECT 'definition', d.relation::regclass::text, ''::text
        FROM tutti.shared_definitions() AS d
        CROSS JOIN LATERAL (SELECT before -> 'definitions' ->> d.relation::text) AS s (digest)
        WHERE d.is_own AND d.digest IS DISTINCT FROM s.digest
            OR s.digest IS NOT NULL AND d.digest <> s.digest;
        RETURN QUERY SELECT 'definition', 'a table or a view that was there before', ''::text
        FROM jsonb_object_keys(nullif(before -> 'definitions', 'null')) AS k (relation)
        WHERE NOT EXISTS (SELECT FROM pg_class c WHERE c.oid = k.relation::oid);
        RETURN QUERY SELECT 'temporary', ''::text, ''::text WHERE pg_my_temp_schema() <> 0;
    END IF;
    RETURN QUERY SELECT 'deferred', ''::text, ''::text WHERE tutti.deferred() IS NOT NULL;
    RETURN QUERY SELECT 'held', c.name, ''::text FROM pg_cursors AS c
    WHERE c.is_holdable AND c.creation_time >= now();
    RETURN QUERY SELECT 'setting', s.key, s.value FROM jsonb_each_text(settings) AS s
    WHERE s.value IS DISTINCT FROM before -> 'settings' ->> s.key;
END $tutti$;
COMMENT ON FUNCTION tutti.compare IS 'The part of tutti.touched that needs a search path of its own.';

CREATE OR REPLACE FUNCTION tutti.touched(all_tables boolean, at_one_moment boolean, names text[], nonce text)
    RETURNS TABLE (what text, name text, value text)
LANGUAGE sql AS $tutti$
    SELECT * FROM tutti.compare(tutti.marked(nonce), all_tables, at_one_moment,
        CASE WHEN names IS NOT NULL THEN tutti.settings_now(names) END)
$tutti$;
COMMENT ON FUNCTION tutti.touched IS 'What this transaction has done since tutti.mark that code on one node must not do: tables read or written of which this node has a part or a copy only, changes of the schema, and settings that differ.';

-- What tells a function from one that is made in its place.
CREATE OR REPLACE FUNCTION tutti.text_of(routine oid) RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $tutti$
BEGIN
    RETURN (SELECT md5(concat_ws(' ', p.prolang, p.prosrc, p.prosqlbody, p.proconfig)) FROM pg_proc p WHERE p.oid = routine);
END $tutti$;

DROP FUNCTION IF EXISTS tutti.declare(text, text);
CREATE OR REPLACE FUNCTION tutti.declare(named text, new_kind text, seal text) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $tutti$
DECLARE
    found record;
    acting name := CASE current_setting('role') WHEN 'none' THEN session_user
        ELSE current_setting('role') END;
BEGIN
    -- Code that somebody else runs could ask for this in his name.
    IF tutti.is_sealed('declare ' || named, seal) IS NOT TRUE THEN
        RAISE insufficient_privilege USING MESSAGE = 'only a gateway can declare a function';
    END IF;
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
        INSERT INTO tutti.declaration (routine, kind, of_text)
            VALUES (found.oid, new_kind, tutti.text_of(found.oid));
    END IF;
    RETURN found.oid::regprocedure::text;
END $tutti$;
COMMENT ON FUNCTION tutti.declare IS 'Says where a function, given by its number, may run; NULL takes it back. The role must be its owner, the caller a gateway.';

CREATE OR REPLACE FUNCTION tutti.end_declaration(routine oid, seal text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $tutti$
BEGIN
    IF tutti.is_sealed('end declaration ' || routine, seal) IS NOT TRUE THEN
        RAISE insufficient_privilege USING MESSAGE = 'only a gateway can end a declaration';
    END IF;
    DELETE FROM tutti.declaration d WHERE d.routine = end_declaration.routine;
END $tutti$;
COMMENT ON FUNCTION tutti.end_declaration IS 'Takes back what was said of a function, for what it touches has changed. The caller must be a gateway.';

CREATE OR REPLACE FUNCTION tutti.temporary_code() RETURNS SETOF name
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET row_security = on AS $tutti$
DECLARE
    own oid := pg_my_temp_schema();
BEGIN
    IF own = 0 THEN
        RETURN;
    END IF;
    RETURN QUERY WITH RECURSIVE type_with_code AS (
        SELECT t.oid, t.typname, t.typarray FROM pg_type t LEFT JOIN pg_class c ON c.oid = t.typrelid
        WHERE t.typnamespace = own AND (t.typtype IN ('d', 'e', 'r', 'm')
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

CREATE OR REPLACE FUNCTION tutti.temporary_types() RETURNS SETOF text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET row_security = on AS $tutti$
DECLARE
    own oid := pg_my_temp_schema();
BEGIN
    IF own <> 0 THEN
        RETURN QUERY SELECT DISTINCT concat(a.atttypid, ' ', c.relname)
        FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
        WHERE c.relnamespace = own AND c.relkind IN ('r', 'p', 'v', 'f') AND a.atttypid >= 16384 ORDER BY 1;
    END IF;
END $tutti$;
COMMENT ON FUNCTION tutti.temporary_types IS 'Users'' types of columns of this session''s temporary relations: number, space, name of the relation.';
