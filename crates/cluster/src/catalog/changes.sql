-- What the transaction that asks has changed of relations. Part of the schema tutti.
--
-- The same facts that the gateway reads of all relations when it reads everything (catalog/load.rs and
-- catalog/code.rs: what is said there about each is true here), of those alone that the transaction has
-- locked as whoever changes them does. Everything is looked up by index and planned once for each
-- connection, so that it costs what was changed, however many relations there are.
--
-- Where OFFSET 0 stands, the server would otherwise begin with everything of one class, as long as that is
-- little.
--
-- What it prints is read by others, under settings of theirs, so it is printed under fixed ones.
--
-- One function for all, for a question less is worth more than a short function: the first column says
-- of which kind a row is.

-- Nobody else changes these relations now; those that are gone are among them.
CREATE OR REPLACE FUNCTION tutti.changed_relations() RETURNS oid[]
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET row_security = on AS $tutti$
BEGIN
    RETURN coalesce(array_agg(DISTINCT l.relation), '{}') FROM pg_locks l
    WHERE l.pid = pg_backend_pid() AND l.locktype = 'relation' AND l.relation >= 16384
        AND l.mode = ANY ('{ShareUpdateExclusiveLock,ShareLock,ShareRowExclusiveLock,ExclusiveLock,AccessExclusiveLock}');
END $tutti$;

-- Removes the registrations of tables that this transaction has dropped.
CREATE OR REPLACE FUNCTION tutti.forget_changed() RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $tutti$
BEGIN
    DELETE FROM tutti.placement p WHERE p.relation = ANY (tutti.changed_relations())
        AND NOT EXISTS (SELECT FROM pg_class c WHERE c.oid = p.relation);
END $tutti$;

CREATE OR REPLACE FUNCTION tutti.changed_oids(changed oid[]) RETURNS
    TABLE (kind text, number oid, in_schema name, called name)
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET row_security = on
SET plan_cache_mode = force_generic_plan SET jit = off
SET join_collapse_limit = 1 SET from_collapse_limit = 1
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $tutti$
BEGIN
    RETURN QUERY
    SELECT 'table', c.oid, n.nspname, c.relname
    FROM unnest(changed) AS o JOIN pg_class c ON c.oid = o JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND n.nspname !~ '^pg_(toast|temp)'
    -- Types of arrays are known by their elements.
    UNION ALL SELECT v.kind, v.oid, n.nspname, r.typname
    FROM unnest(changed) AS o JOIN pg_class c ON c.oid = o
    JOIN pg_type r ON r.oid = c.reltype, LATERAL (VALUES ('type', r.oid), ('array', r.typarray)) AS v (kind, oid)
    JOIN pg_type t ON t.oid = v.oid JOIN pg_namespace n ON n.oid = t.typnamespace
    WHERE n.nspname !~ '^pg_(toast|temp)';
END $tutti$;

-- all_built_in, grave_built_in: numbers of built-in functions, those that are more than functions of
-- their arguments, and of these the ones that matter in defaults and views.
CREATE OR REPLACE FUNCTION tutti.changes(all_built_in oid[], grave_built_in oid[]) RETURNS
    TABLE (what text, c0 text, c1 text, c2 text, c3 text, c4 text, c5 text, c6 text, c7 text, c8 text,
        c9 text, c10 text, c11 text, c12 text)
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET row_security = on
SET quote_all_identifiers = off SET DateStyle = 'ISO, YMD' SET IntervalStyle = iso_8601 SET TimeZone = 'UTC'
SET extra_float_digits = 1 SET bytea_output = hex
SET plan_cache_mode = force_generic_plan SET jit = off
SET join_collapse_limit = 1 SET from_collapse_limit = 1
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET enable_indexscan = on SET enable_bitmapscan = on SET enable_nestloop = on AS $tutti$
DECLARE
    changed oid[] := tutti.changed_relations();
BEGIN
    -- What compares rows by a user's operator class is known of types, not of relations.
    RETURN QUERY SELECT 'changed', o::text, c.relpersistence::text,
        CASE WHEN EXISTS (SELECT FROM pg_index i, unnest(i.indclass::oid[]) AS k
                WHERE i.indrelid = o AND k >= 16384)
            OR EXISTS (SELECT FROM pg_partitioned_table t, unnest(t.partclass::oid[]) AS k
                WHERE t.partrelid = o AND k >= 16384) THEN 't' ELSE 'f' END, NULL, NULL, NULL, NULL, NULL, NULL,
        NULL, NULL, NULL, NULL
    FROM unnest(changed) AS o LEFT JOIN pg_class c ON c.oid = o;

    RETURN QUERY SELECT 'relation', c.oid::text, n.nspname::text, c.relname::text, c.relkind::text,
        -- Printing a view locks its tables. One whose query is another now has locked them itself.
        CASE WHEN c.relkind = 'v' AND EXISTS (SELECT FROM pg_rewrite r WHERE r.ev_class = c.oid
                AND r.ev_type = '1' AND age(r.xmin) <= age(pg_current_xact_id_if_assigned()::xid))
            THEN pg_get_viewdef(c.oid) END,
        p.kind, coalesce(array_to_string(p.key_attnums, ' '), p.key_attnum::text), p.map::text,
        (SELECT array_to_string(k.conkey, ' ') FROM pg_constraint k
         WHERE k.conrelid = c.oid AND k.contype = 'p'),
        CASE WHEN c.relkind = 'v' THEN (SELECT concat(r.oid, ' ', r.xmin) FROM pg_rewrite r
            WHERE r.ev_class = c.oid AND r.ev_type = '1') END,
        CASE WHEN c.relrowsecurity THEN 't' ELSE 'f' END,
        tutti.kept_of(c.oid)::text, p.computed::text
    FROM unnest(changed) AS o JOIN pg_class c ON c.oid = o JOIN pg_namespace n ON n.oid = c.relnamespace
    LEFT JOIN tutti.placement p ON p.relation = c.oid
    WHERE c.relkind IN ('r', 'p', 'v', 'm', 'S', 'f')
        AND n.nspname <> ALL ('{pg_catalog,information_schema,pg_toast,tutti}')
        AND n.nspname !~ '^pg_(toast_)?temp_';

    RETURN QUERY SELECT 'column', a.attrelid::text, a.attnum::text, a.attname::text, a.atttypid::text,
        CASE WHEN e.oid IS NULL THEN format('%I.%I', tn.nspname, t.typname)
             ELSE format('%I.%I[]', en.nspname, e.typname) END,
        CASE WHEN a.attnotnull THEN 't' ELSE 'f' END,
        CASE WHEN a.attgenerated <> '' THEN NULL
             WHEN a.attidentity <> '' THEN (
                SELECT format('nextval(%L::regclass)', format('%I.%I', sn.nspname, s.relname))
                FROM pg_attribute i
                JOIN pg_depend k ON k.refclassid = 'pg_class'::regclass AND k.refobjid = i.attrelid
                    AND k.refobjsubid = i.attnum AND k.classid = 'pg_class'::regclass
                    AND k.deptype = 'i'
                JOIN pg_class s ON s.oid = k.objid AND s.relkind = 'S'
                JOIN pg_namespace sn ON sn.oid = s.relnamespace
                WHERE i.attrelid IN (c.oid, pg_partition_root(c.oid)) AND i.attname = a.attname
                    AND NOT i.attisdropped
                ORDER BY i.attrelid <> c.oid LIMIT 1)
             ELSE coalesce(pg_get_expr(d.adbin, 0), pg_get_expr(t.typdefaultbin, 0)) END,
        CASE WHEN a.attgenerated <> '' THEN 't' ELSE 'f' END, a.attidentity::text,
        CASE WHEN t.typtype = 'd' THEN 't' ELSE 'f' END,
        format_type(a.atttypid, a.atttypmod), a.atttypmod::text,
        concat(CASE WHEN NOT l.collisdeterministic THEN '!' END,
            CASE WHEN a.attcollation <> t.typcollation THEN format('%I.%I', ln.nspname, l.collname) END)
    FROM unnest(changed) AS o JOIN pg_class c ON c.oid = o JOIN pg_namespace n ON n.oid = c.relnamespace
    JOIN pg_attribute a ON a.attrelid = c.oid
    LEFT JOIN pg_collation l ON l.oid = a.attcollation
    LEFT JOIN pg_namespace ln ON ln.oid = l.collnamespace
    JOIN pg_type t ON t.oid = a.atttypid
    JOIN pg_namespace tn ON tn.oid = t.typnamespace
    LEFT JOIN pg_type e ON e.oid = t.typelem AND e.typarray = t.oid
    LEFT JOIN pg_namespace en ON en.oid = e.typnamespace
    LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
    WHERE a.attnum > 0 AND NOT a.attisdropped AND c.relkind IN ('r', 'p', 'v', 'm', 'S', 'f')
        AND n.nspname <> ALL ('{pg_catalog,information_schema,pg_toast,tutti}')
        AND n.nspname !~ '^pg_(toast_)?temp_'
    ORDER BY a.attrelid, a.attnum;

    RETURN QUERY SELECT 'map', b.map::text, string_agg(b.node::text, ' ' ORDER BY b.bucket), m.key_family,
        (SELECT string_agg(encode(convert_to(u.split, 'UTF8'), 'hex'), ' ' ORDER BY u.place)
            FROM unnest(m.splits) WITH ORDINALITY AS u (split, place)), NULL,
        NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
    FROM tutti.bucket b JOIN tutti.map m ON m.id = b.map
    WHERE b.map = ANY (ARRAY(SELECT p.map FROM unnest(changed) AS o JOIN tutti.placement p ON p.relation = o))
    GROUP BY b.map, m.key_family, m.splits;

    RETURN QUERY WITH object (classid, objid, relation, kind, name, fired, changes, tree, matters, further) AS MATERIALIZED (
        SELECT 'pg_policy'::regclass::oid, p.oid, p.polrelid, 'policy', p.polname::text, 15, false,
            concat(p.polqual::text, p.polwithcheck::text), all_built_in, NULL::text
        FROM unnest(changed) AS o JOIN pg_policy p ON p.polrelid = o
        UNION ALL SELECT 'pg_trigger'::regclass, t.oid, t.tgrelid, 'trigger', t.tgname,
            (t.tgtype & 4) / 4 + (t.tgtype & 16) / 8 + (t.tgtype & 8) / 2 + (t.tgtype & 32) / 4,
            t.tgtype & 3 = 3, t.tgqual::text, all_built_in, NULL
        FROM unnest(changed) AS o JOIN pg_trigger t ON t.tgrelid = o
        WHERE NOT t.tgisinternal AND t.tgenabled <> 'D'
            AND NOT EXISTS (SELECT FROM pg_proc f WHERE f.oid = t.tgfoid AND f.pronamespace = 'tutti'::regnamespace)
        UNION ALL SELECT 'pg_rewrite'::regclass, r.oid, r.ev_class,
            CASE WHEN r.ev_type = '1' THEN 'view' ELSE 'rule' END, r.rulename,
            CASE r.ev_type WHEN '2' THEN 2 WHEN '3' THEN 1 WHEN '4' THEN 4 ELSE 0 END, false,
            concat(r.ev_qual::text, r.ev_action::text), grave_built_in, NULL
        FROM unnest(changed) AS o JOIN pg_rewrite r ON r.ev_class = o JOIN pg_class c ON c.oid = r.ev_class
        WHERE r.ev_enabled <> 'D' AND c.relkind <> 'm'
        UNION ALL SELECT 'pg_constraint'::regclass, k.oid, k.conrelid, 'check', k.conname, 15, false,
            CASE WHEN k.contype = 'c' THEN k.conbin::text END, all_built_in, NULL
        FROM unnest(changed) AS o JOIN pg_constraint k ON k.conrelid = o WHERE k.contype IN ('c', 'x')
        UNION ALL SELECT 'pg_attrdef'::regclass, d.oid, d.adrelid,
            CASE WHEN a.attgenerated = '' THEN 'default' ELSE 'check' END, a.attname, 15, false,
            d.adbin::text, grave_built_in, NULL
        FROM unnest(changed) AS o JOIN pg_attrdef d ON d.adrelid = o
        JOIN pg_attribute a ON a.attrelid = d.adrelid AND a.attnum = d.adnum
        UNION ALL SELECT 'pg_class'::regclass, i.indexrelid, i.indrelid, 'index',
            i.indexrelid::regclass::text, 15, false, concat(i.indexprs::text, i.indpred::text), all_built_in, NULL
        FROM unnest(changed) AS o JOIN pg_index i ON i.indrelid = o
        UNION ALL SELECT 'pg_class'::regclass, p.partrelid, p.partrelid, 'index', '', 15, false, p.partexprs::text, NULL, NULL
        FROM unnest(changed) AS o JOIN pg_partitioned_table p ON p.partrelid = o
        UNION ALL SELECT 'pg_statistic_ext'::regclass, s.oid, s.stxrelid, 'statistics', s.stxname, 15, false,
            s.stxexprs::text, all_built_in, NULL
        FROM unnest(changed) AS o JOIN pg_statistic_ext s ON s.stxrelid = o WHERE s.stxexprs IS NOT NULL
    )
    SELECT 'attached', b.relation::text, '0', b.kind, b.name, b.fired::text,
        CASE WHEN b.changes THEN 't' ELSE 'f' END,
        CASE d.refclassid WHEN 'pg_proc'::regclass THEN 'f' WHEN 'pg_operator'::regclass THEN 'o'
            WHEN 'pg_type'::regclass THEN 't' ELSE 'r' END,
        d.refobjid::text, rn.nspname::text, r.relname::text,
        CASE WHEN b.classid = ANY (ARRAY['pg_class', 'pg_constraint', 'pg_statistic_ext']::regclass[]::oid[])
            THEN b.tree END, NULL, NULL
    FROM object b CROSS JOIN LATERAL (SELECT x.refclassid, x.refobjid, x.deptype, x.objsubid FROM pg_depend x
        WHERE x.classid = b.classid AND x.objid = b.objid OFFSET 0) AS d
    LEFT JOIN pg_class r ON d.refclassid = 'pg_class'::regclass AND r.oid = d.refobjid
    LEFT JOIN pg_namespace rn ON rn.oid = r.relnamespace
    WHERE d.refobjid >= 16384 AND d.refobjid <> b.relation AND CASE d.refclassid
        WHEN 'pg_proc'::regclass THEN d.deptype <> 'e'
        WHEN 'pg_operator'::regclass THEN d.deptype <> 'e'
        WHEN 'pg_type'::regclass THEN d.deptype = 'n' AND (b.classid <> 'pg_class'::regclass OR d.objsubid = 0)
        WHEN 'pg_class'::regclass THEN b.classid IN ('pg_policy'::regclass, 'pg_rewrite'::regclass)
        ELSE false END
    UNION ALL SELECT 'attached', b.relation::text, '0', b.kind, b.name, b.fired::text,
        CASE WHEN b.changes THEN 't' ELSE 'f' END, 'f', f.oid::text, NULL, NULL, NULL, NULL, NULL
    FROM object b, LATERAL (SELECT DISTINCT m[1]::oid AS oid
        FROM regexp_matches(b.tree, ':funcid (\d+)', 'g') AS m) AS f
    WHERE f.oid = ANY (b.matters)
    UNION ALL SELECT 'attached', b.relation::text, '0', b.kind, b.name, b.fired::text,
        CASE WHEN b.changes THEN 't' ELSE 'f' END, '', '0', NULL, NULL, NULL, NULL, NULL
    FROM object b WHERE b.kind = 'trigger'
    UNION ALL SELECT 'attached', b.relation::text, '0', b.kind, b.name, b.fired::text,
        CASE WHEN b.changes THEN 't' ELSE 'f' END, 'r', c.oid::text, n.nspname::text, c.relname::text,
        NULL, NULL, NULL
    FROM object b JOIN pg_rewrite r ON r.oid = b.objid JOIN pg_class c ON c.oid = r.ev_class
    JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE b.kind = 'rule' AND (r.ev_action::text NOT LIKE '({QUERY :commandType 7 %'
        OR r.ev_qual::text LIKE '%{SUBLINK %')
    UNION ALL SELECT DISTINCT 'literal', m[1], NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
    FROM object b, regexp_matches(concat(b.tree, b.further),
        ':consttype (?:25|1042|1043) [^{}]*:constvalue \d+ \[ ([-0-9 ]+)\]', 'g') AS m
    WHERE m[1] LIKE '% 46 %';

    RETURN QUERY SELECT 'child', h.inhparent::text, h.inhrelid::text, n.nspname::text, c.relname::text, '15', '0',
        NULL, NULL, 'f', 'f', '0', '0', NULL
    FROM (SELECT p.inhparent, p.inhrelid FROM unnest(changed) AS o JOIN pg_inherits p ON p.inhparent = o
        UNION SELECT p.inhparent, p.inhrelid FROM unnest(changed) AS o JOIN pg_inherits p ON p.inhrelid = o) AS h
    JOIN pg_class c ON c.oid = h.inhrelid AND c.relkind IN ('r', 'p', 'f')
    JOIN pg_namespace n ON n.oid = c.relnamespace;

    RETURN QUERY SELECT 'key', f.confrelid::text, f.conrelid::text, n.nspname::text, c.relname::text, e.by::text,
        e.as_event::text, r.attname::text, k.attname::text,
        CASE WHEN e.by <> 0 AND e.as_event = 2 AND (e.by = 2 OR f.confdelsetcols IS NULL
            OR k.attnum = ANY (f.confdelsetcols)) THEN 't' ELSE 'f' END,
        CASE WHEN e.action = 'd' THEN 't' ELSE 'f' END, f.oid::text, e.statement::text, NULL
    FROM (SELECT k.oid FROM unnest(changed) AS o JOIN pg_constraint k ON k.conrelid = o
        UNION SELECT d.objid FROM unnest(changed) AS o CROSS JOIN LATERAL (SELECT d.objid FROM pg_depend d
            WHERE d.refclassid = 'pg_class'::regclass AND d.refobjid = o
                AND d.classid = 'pg_constraint'::regclass OFFSET 0) AS d) AS s
    CROSS JOIN LATERAL (SELECT x.* FROM pg_constraint x WHERE x.oid = s.oid AND x.contype = 'f' OFFSET 0) AS f
    CROSS JOIN LATERAL (SELECT x.relname, x.relnamespace FROM pg_class x WHERE x.oid = f.conrelid OFFSET 0) AS c
    JOIN pg_namespace n ON n.oid = c.relnamespace
    CROSS JOIN LATERAL (VALUES
        (4, CASE WHEN f.confdeltype IN ('c', 'n', 'd') THEN 4 ELSE 0 END,
            CASE f.confdeltype WHEN 'c' THEN 4 ELSE 2 END, f.confdeltype),
        (2, CASE WHEN f.confupdtype IN ('c', 'n', 'd') THEN 2 ELSE 0 END, 2, f.confupdtype)
        ) AS e (statement, by, as_event, action)
    CROSS JOIN LATERAL unnest(f.conkey, f.confkey) WITH ORDINALITY AS u (own, other, place)
    JOIN pg_attribute k ON k.attrelid = f.conrelid AND k.attnum = u.own
    JOIN pg_attribute r ON r.attrelid = f.confrelid AND r.attnum = u.other
    -- What holds over all nodes is checked when rows are where they belong.
    WHERE n.nspname <> 'tutti'
        AND (e.statement = 4 AND e.by <> 0 OR NOT EXISTS (SELECT FROM tutti.reference y WHERE y.foreign_key = f.oid))
    ORDER BY f.oid, u.place;

    RETURN QUERY SELECT 'row', t.oid::text, n.nspname::text, t.typname::text, t.typarray::text,
        (SELECT string_agg(a.atttypid::text, ' ') FROM pg_attribute a
            WHERE a.attrelid = c.oid AND NOT a.attisdropped),
        concat_ws(' ', t.typinput::oid, t.typreceive::oid, t.typmodin::oid),
        concat_ws(' ', t.typoutput::oid, t.typsend::oid), c.oid::text, 'f',
        NULL, NULL, NULL, NULL
    FROM unnest(changed) AS o JOIN pg_class c ON c.oid = o AND c.relkind <> 'c'
    JOIN pg_type t ON t.oid = c.reltype AND t.typtype = 'c' JOIN pg_namespace n ON n.oid = t.typnamespace
    WHERE n.nspname <> 'tutti' AND (EXISTS (SELECT FROM pg_attribute a
            WHERE a.attrelid = c.oid AND a.atttypid >= 16384 AND a.attnum > 0 AND NOT a.attisdropped)
        OR EXISTS (SELECT FROM pg_depend d WHERE d.refclassid = 'pg_type'::regclass
            AND d.refobjid IN (t.oid, t.typarray) AND d.deptype = 'n'
            AND d.classid = ANY ('{pg_proc,pg_type,pg_class}'::regclass[]::oid[]))
        OR EXISTS (SELECT FROM pg_cast k WHERE k.oid >= 16384 AND t.oid IN (k.castsource, k.casttarget)));

    RETURN QUERY SELECT 'oid', n.kind, n.number::text, n.in_schema::text, n.called::text, NULL, NULL, NULL, NULL,
        NULL, NULL, NULL, NULL, NULL
    FROM tutti.changed_oids(changed) AS n;
END $tutti$;
COMMENT ON FUNCTION tutti.changes IS 'What the transaction that calls it has changed of relations, as a gateway knows them.';

CREATE OR REPLACE FUNCTION tutti.computed_problem(known tutti.placement, key pg_attribute) RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $tutti$
BEGIN
    IF coalesce(key.attgenerated, '') = '' THEN
        RETURN NULL;
    END IF;
    RETURN CASE
        WHEN key.attgenerated <> 's' THEN 'It is computed when it is read, and not stored.'
        WHEN known.kind <> 'hash' THEN 'Rows that arrive from other nodes would have it computed anew.'
        WHEN NOT EXISTS (SELECT FROM jsonb_array_elements(known.computed) AS c (it) WHERE (c.it -> 'column')::smallint = key.attnum)
            THEN 'What it is computed of is not known.'
        WHEN EXISTS (SELECT FROM pg_attrdef d JOIN pg_depend x ON x.classid = 'pg_attrdef'::regclass AND x.objid = d.oid
                WHERE d.adrelid = known.relation AND d.adnum = key.attnum
                    AND (x.refclassid <> 'pg_class'::regclass AND x.refobjid >= 16384 OR x.refobjsubid < 0))
            THEN 'Its expression is not of built-in functions and columns alone, which give every node the same.'
        -- A row that is stored through a parent is computed by the expression of the partition that it is in.
        WHEN EXISTS (SELECT FROM pg_inherits h JOIN tutti.placement o
                ON o.relation = CASE h.inhrelid WHEN known.relation THEN h.inhparent ELSE h.inhrelid END
                CROSS JOIN LATERAL (SELECT count(*) AS differing
                    FROM (SELECT pg_get_expr(d.adbin, d.adrelid) FROM jsonb_array_elements(known.computed) AS c (it)
                            JOIN pg_attrdef d ON d.adrelid = known.relation AND d.adnum = (c.it -> 'column')::smallint) AS own (text)
                    FULL JOIN (SELECT pg_get_expr(d.adbin, d.adrelid) FROM jsonb_array_elements(o.computed) AS c (it)
                            JOIN pg_attrdef d ON d.adrelid = o.relation AND d.adnum = (c.it -> 'column')::smallint) AS theirs (text)
                        ON own.text = theirs.text
                    WHERE own.text IS NULL OR theirs.text IS NULL) AS compared
                WHERE known.relation IN (h.inhrelid, h.inhparent) AND compared.differing > 0)
            THEN 'A parent, partition or child of the table computes it otherwise.'
    END;
END $tutti$;
COMMENT ON FUNCTION tutti.computed_problem IS 'Why a generated column cannot be in a distribution key, if so.';

-- What the rules of placement (catalog/verify.rs) look at, of what the transaction has changed and what
-- depends on it.
CREATE OR REPLACE FUNCTION tutti.ties_of_changes() RETURNS
    TABLE (what text, c0 text, c1 text, c2 text, c3 text, c4 text, c5 text, c6 text, c7 text, c8 text,
        c9 text, c10 text, c11 text, c12 text)
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET row_security = on
SET quote_all_identifiers = off SET DateStyle = 'ISO, YMD' SET IntervalStyle = iso_8601 SET TimeZone = 'UTC'
SET extra_float_digits = 1 SET bytea_output = hex
SET plan_cache_mode = force_generic_plan SET jit = off
SET join_collapse_limit = 1 SET from_collapse_limit = 1
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET enable_indexscan = on SET enable_bitmapscan = on SET enable_nestloop = on AS $tutti$
DECLARE
    changed oid[] := tutti.changed_relations();
    -- Foreign keys from and to what has changed.
    keys oid[] := ARRAY(SELECT k.oid FROM unnest(changed) AS o JOIN pg_constraint k ON k.conrelid = o
        WHERE k.contype = 'f'
        UNION SELECT k.oid FROM unnest(changed) AS o CROSS JOIN LATERAL (SELECT d.objid FROM pg_depend d
            WHERE d.refclassid = 'pg_class'::regclass AND d.refobjid = o
                AND d.classid = 'pg_constraint'::regclass OFFSET 0) AS d
        JOIN pg_constraint k ON k.oid = d.objid WHERE k.contype = 'f');
    -- Views from which something that has changed is seen.
    views oid[];
BEGIN
    RETURN QUERY SELECT 'table', p.relation::text, n.nspname::text, c.relname::text, p.kind, a.attname::text,
        k.type::text, p.map::text, a.atttypid::text, a.atttypmod::text, k.typmod::text,
        format_type(a.atttypid, a.atttypmod),
        CASE WHEN NOT coalesce(l.collisdeterministic, true) THEN 'f'
            -- Ranges of texts are by their bytes.
            WHEN l.oid IS NOT NULL AND (l.collprovider <> 'c' OR l.collcollate <> ALL ('{C,POSIX}'::text[]))
                AND EXISTS (SELECT FROM tutti.map m WHERE m.id = p.map AND m.splits IS NOT NULL) THEN 'ranges'
            ELSE 't' END,
        tutti.computed_problem(p, a)
    FROM (SELECT o FROM unnest(changed) AS o
        UNION SELECT v.oid FROM unnest(keys) AS o JOIN pg_constraint k ON k.oid = o,
            LATERAL (VALUES (k.conrelid), (k.confrelid)) AS v (oid)
        UNION SELECT h.inhrelid FROM unnest(changed) AS o JOIN pg_inherits h ON h.inhparent = o
        UNION SELECT h.inhparent FROM unnest(changed) AS o JOIN pg_inherits h ON h.inhrelid = o) AS s (oid)
    JOIN tutti.placement p ON p.relation = s.oid
    JOIN pg_class c ON c.oid = p.relation
    JOIN pg_namespace n ON n.oid = c.relnamespace
    -- Of a key of several columns, a row for each.
    LEFT JOIN LATERAL unnest(coalesce(p.key_attnums, ARRAY[p.key_attnum]), coalesce(p.key_types, ARRAY[p.key_type]),
        coalesce(p.key_typmods, ARRAY[p.key_typmod])) WITH ORDINALITY AS k (attnum, type, typmod, place) ON true
    LEFT JOIN pg_attribute a
        ON a.attrelid = p.relation AND a.attnum = k.attnum AND NOT a.attisdropped
    LEFT JOIN pg_collation l ON l.oid = a.attcollation
    ORDER BY p.relation, k.place;

    -- Unique indexes and exclusion constraints of distributed tables; the last column says whether the
    -- distribution key is among the compared columns, compared by a plain equality.
    RETURN QUERY SELECT 'unique', i.indrelid::text, x.relname::text,
        CASE WHEN i.indisprimary THEN 't' ELSE 'f' END, CASE WHEN i.indisexclusion THEN 't' ELSE 'f' END,
        CASE WHEN coalesce(p.key_attnums, ARRAY[p.key_attnum]) <@ ARRAY(
            SELECT i.indkey[place] FROM generate_series(0, i.indnkeyatts - 1) AS place
            LEFT JOIN pg_depend d ON d.classid = 'pg_class'::regclass AND d.objid = i.indexrelid
                AND d.refclassid = 'pg_constraint'::regclass AND d.deptype = 'i'
            LEFT JOIN pg_constraint k ON k.oid = d.refobjid AND k.contype = 'x'
            LEFT JOIN pg_operator o ON o.oid = k.conexclop[place + 1]
            LEFT JOIN pg_collation l ON l.oid = i.indcollation[place]
            WHERE i.indkey[place] = ANY (coalesce(p.key_attnums, ARRAY[p.key_attnum]))
                AND coalesce(l.collisdeterministic, true)
                AND (NOT i.indisexclusion OR coalesce(o.oprname, '=') = '=')) THEN 't' ELSE 'f' END,
        NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
    FROM unnest(changed) AS s (oid) JOIN tutti.placement p ON p.relation = s.oid
    JOIN pg_index i ON i.indrelid = p.relation
    JOIN pg_class x ON x.oid = i.indexrelid
    WHERE p.kind IN ('hash', 'round_robin', 'async', 'async_pending', 'async_ending') AND (i.indisunique OR i.indisexclusion)
        AND NOT EXISTS (SELECT FROM tutti.unique_index u WHERE u.index = i.indexrelid)
    ORDER BY i.indrelid, x.relname;

    -- Names that the gateway's own constraints have.
    RETURN QUERY SELECT 'namesake', k.conname::text, k.conrelid::regclass::text, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
        NULL, NULL, NULL, NULL
    FROM unnest(changed) AS s (oid) JOIN pg_constraint k ON k.conrelid = s.oid
    WHERE (k.conname LIKE 'tutti\_unique\_%' OR k.conname LIKE 'tutti\_reference\_%')
        AND NOT EXISTS (SELECT FROM tutti.kept u WHERE u.relation = k.conrelid
            AND k.conname = ANY (ARRAY(SELECT concat('tutti_', u.kind, '_', u.number, '_', f)::name FROM unnest('{i,u,d}'::text[]) AS f)));

    -- Those that hold nevertheless, by entries of their own, and cannot any more.
    RETURN QUERY SELECT 'global', g.called, g.relation::regclass::text, g.problem, g.kind, NULL, NULL, NULL, NULL, NULL,
        NULL, NULL, NULL, NULL
    FROM (SELECT 'unique' AS kind, u.number, u.relation, x.relname::text, tutti.unique_problem(u)
        FROM tutti.unique_index u JOIN unnest(changed) AS s (oid) ON s.oid = u.relation JOIN pg_class x ON x.oid = u.index
        UNION ALL SELECT 'reference', r.number, r.relation, k.conname::text, tutti.reference_problem(r)
        FROM tutti.reference r JOIN pg_constraint k ON k.oid = r.foreign_key
        WHERE r.relation = ANY (changed) OR r.referred = ANY (changed)) AS g (kind, number, relation, called, problem)
    WHERE g.problem IS NOT NULL
    ORDER BY g.number;

    -- Foreign keys that concern a registered table: whether the keys of both sides are paired, and
    -- whether an action would change the referencing table's distribution key in place.
    RETURN QUERY SELECT 'key', f.conname::text, f.conrelid::text, f.confrelid::text, n.nspname::text,
        c.relname::text, rn.nspname::text, r.relname::text,
        CASE WHEN NOT EXISTS (SELECT FROM unnest(coalesce(p.key_attnums, ARRAY[p.key_attnum]),
                coalesce(rp.key_attnums, ARRAY[rp.key_attnum])) AS key (own, theirs)
            WHERE NOT EXISTS (SELECT FROM generate_subscripts(f.conkey, 1) AS i
                WHERE f.conkey[i] = key.own AND f.confkey[i] = key.theirs)) THEN 't' ELSE 'f' END,
        CASE WHEN EXISTS (SELECT FROM (SELECT unnest(coalesce(p.key_attnums, ARRAY[p.key_attnum]))
                -- Where it is computed, the columns of which it is.
                UNION ALL SELECT n.attnum::smallint FROM jsonb_array_elements(p.computed) AS c (it),
                    jsonb_each_text(c.it -> 'names') AS n (called, attnum)) AS key (attnum)
            WHERE key.attnum = ANY (f.conkey) AND (
                f.confupdtype IN ('c', 'n', 'd')
                OR (f.confdeltype IN ('n', 'd')
                    AND (f.confdelsetcols IS NULL OR key.attnum = ANY (f.confdelsetcols))))) THEN 't' END,
        NULL, NULL, NULL, NULL
    FROM unnest(keys) AS s (oid) JOIN pg_constraint f ON f.oid = s.oid
    JOIN pg_class c ON c.oid = f.conrelid
    JOIN pg_namespace n ON n.oid = c.relnamespace
    JOIN pg_class r ON r.oid = f.confrelid
    JOIN pg_namespace rn ON rn.oid = r.relnamespace
    LEFT JOIN tutti.placement p ON p.relation = f.conrelid
    LEFT JOIN tutti.placement rp ON rp.relation = f.confrelid
    WHERE n.nspname <> 'tutti' AND (p.relation IS NOT NULL OR rp.relation IS NOT NULL)
        AND NOT EXISTS (SELECT FROM tutti.reference k WHERE k.foreign_key = f.oid)
        -- One node has all rows, and checks whatever refers to what.
        AND (SELECT count(*) FROM tutti.node) > 1
    ORDER BY f.conrelid, f.conname;

    RETURN QUERY SELECT 'child', h.inhrelid::text, h.inhparent::text, n.nspname::text, c.relname::text,
        pn.nspname::text, pc.relname::text, NULL, NULL, NULL, NULL, NULL, NULL, NULL
    FROM (SELECT i.inhparent, i.inhrelid FROM unnest(changed) AS o JOIN pg_inherits i ON i.inhparent = o
        UNION SELECT i.inhparent, i.inhrelid FROM unnest(changed) AS o JOIN pg_inherits i ON i.inhrelid = o) AS h
    JOIN pg_class c ON c.oid = h.inhrelid AND c.relkind IN ('r', 'p', 'f') AND c.relpersistence <> 't'
    JOIN pg_namespace n ON n.oid = c.relnamespace
    JOIN pg_class pc ON pc.oid = h.inhparent
    JOIN pg_namespace pn ON pn.oid = pc.relnamespace
    ORDER BY n.nspname, c.relname;

    -- Columns of spread tables whose values are numbers of objects, where nodes need not have the same
    -- objects. Roles are on all.
    RETURN QUERY SELECT 'number', n.nspname::text, c.relname::text, a.attname::text, format_type(a.atttypid, NULL),
        NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
    FROM (SELECT o FROM unnest(changed) AS o
        -- Tables with columns of a type that has changed.
        UNION SELECT t.typrelid FROM unnest(changed) AS o JOIN pg_class r ON r.oid = o
        CROSS JOIN LATERAL (WITH RECURSIVE made_of (type) AS (
            SELECT r.reltype WHERE r.reltype <> 0
            UNION SELECT CASE d.classid WHEN 'pg_type'::regclass THEN d.objid
                ELSE (SELECT u.reltype FROM pg_class u WHERE u.oid = d.objid) END
            FROM made_of m JOIN pg_depend d ON d.refclassid = 'pg_type'::regclass AND d.refobjid = m.type
                AND d.classid IN ('pg_type'::regclass, 'pg_class'::regclass)
        ) SELECT m.type FROM made_of m) AS m
        JOIN pg_type t ON t.oid = m.type WHERE t.typrelid <> 0) AS s (oid)
    JOIN tutti.placement p ON p.relation = s.oid AND p.kind <> 'home'
    JOIN pg_class c ON c.oid = p.relation JOIN pg_namespace n ON n.oid = c.relnamespace
    JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
    WHERE (SELECT home_by_default FROM tutti.cluster) AND EXISTS (
        WITH RECURSIVE part (oid) AS (
            SELECT a.atttypid
            UNION SELECT f.of FROM part JOIN pg_type t ON t.oid = part.oid CROSS JOIN LATERAL (
                SELECT t.typbasetype WHERE t.typbasetype <> 0
                UNION ALL SELECT t.typelem WHERE t.typcategory = 'A'
                UNION ALL SELECT b.atttypid FROM pg_attribute b
                    WHERE b.attrelid = t.typrelid AND b.attnum > 0 AND NOT b.attisdropped
            ) AS f (of)
        ) SELECT FROM part WHERE part.oid = ANY ('{regclass,regproc,regprocedure,regoper,regoperator,
            regtype,regcollation,regconfig,regdictionary,regnamespace}'::regtype[]::oid[]))
    ORDER BY n.nspname, c.relname, a.attnum;

    -- Materialized views with a distributed table that they use, directly or through views: the way
    -- from the one to the other leads over something that has changed.
    WITH RECURSIVE above (oid) AS (
        SELECT o FROM unnest(changed) AS o
        UNION SELECT r.ev_class FROM above a CROSS JOIN LATERAL (SELECT d.objid FROM pg_depend d
            WHERE d.refclassid = 'pg_class'::regclass AND d.refobjid = a.oid
                AND d.classid = 'pg_rewrite'::regclass OFFSET 0) AS d
        JOIN pg_rewrite r ON r.oid = d.objid AND r.ev_type = '1'
    )
    SELECT array_agg(c.oid) INTO views FROM above a CROSS JOIN LATERAL (SELECT c.oid FROM pg_class c
        WHERE c.oid = a.oid AND c.relkind = 'm' OFFSET 0) AS c;
    -- Where definitions are on node 1 until a table is spread, such a view is, and is filled from all nodes.
    IF views IS NULL OR (SELECT c.home_by_default FROM tutti.cluster c) THEN
        RETURN;
    END IF;
    RETURN QUERY WITH RECURSIVE reaches (view, used) AS (
        SELECT v, v FROM unnest(views) AS v
        UNION SELECT s.view, d.refobjid FROM reaches s
        JOIN pg_rewrite r ON r.ev_class = s.used AND r.ev_type = '1'
        JOIN pg_depend d ON d.classid = 'pg_rewrite'::regclass AND d.objid = r.oid
            AND d.refclassid = 'pg_class'::regclass
    )
    SELECT 'materialized', n.nspname::text, m.relname::text, tn.nspname::text, t.relname::text,
        NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
    FROM reaches s
    JOIN tutti.placement p ON p.relation = s.used AND p.kind IN ('hash', 'round_robin')
    JOIN pg_class m ON m.oid = s.view
    JOIN pg_namespace n ON n.oid = m.relnamespace
    JOIN pg_class t ON t.oid = s.used
    JOIN pg_namespace tn ON tn.oid = t.relnamespace
    ORDER BY n.nspname, m.relname, tn.nspname, t.relname;
END $tutti$;
COMMENT ON FUNCTION tutti.ties_of_changes IS 'What the transaction that calls it has changed of constraints, placements and what depends on them, for the rules of placement.';
