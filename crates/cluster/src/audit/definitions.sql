-- What a node has of definitions, one fact to a row: what kind, of which table (or none), which, and the
-- text that must be the same on all nodes. Run with search_path = pg_catalog, so every name is qualified.
WITH mine AS (
    SELECT n.oid, n.nspname FROM pg_namespace n
    WHERE n.nspname <> ALL ('{pg_catalog,information_schema,pg_toast,tutti}')
        AND n.nspname !~ '^pg_(toast_)?temp_'
), tables AS (
    SELECT c.*, format('%I.%I', n.nspname, c.relname) AS name
    FROM pg_class c JOIN mine n ON n.oid = c.relnamespace
    WHERE c.relkind IN ('r', 'p') AND c.relpersistence <> 't' AND c.oid >= 16384
)
SELECT 'table' AS kind, t.name AS of_table, t.name AS name,
    concat_ws(' ', t.relkind, t.relpersistence, t.relrowsecurity, t.relforcerowsecurity, t.relreplident,
        array_to_string(t.reloptions, ','), pg_get_userbyid(t.relowner), pg_get_partkeydef(t.oid),
        pg_get_expr(t.relpartbound, t.oid),
        (SELECT string_agg(format('inherits %I.%I', pn.nspname, p.relname), ', ' ORDER BY i.inhseqno)
         FROM pg_inherits i JOIN pg_class p ON p.oid = i.inhparent
         JOIN pg_namespace pn ON pn.oid = p.relnamespace WHERE i.inhrelid = t.oid)) AS text
FROM tables t
UNION ALL
SELECT 'column', t.name, format('%s.%I', t.name, a.attname),
    concat_ws(' ', format_type(a.atttypid, a.atttypmod), CASE WHEN a.attnotnull THEN 'not null' END,
        CASE WHEN l.oid <> y.typcollation THEN format('collate %I', l.collname) END,
        'identity ' || nullif(a.attidentity::text, ''), 'generated ' || nullif(a.attgenerated::text, ''),
        'default ' || pg_get_expr(d.adbin, d.adrelid),
        'position ' || row_number() OVER (PARTITION BY t.oid ORDER BY a.attnum))
FROM tables t JOIN pg_attribute a ON a.attrelid = t.oid AND a.attnum > 0 AND NOT a.attisdropped
JOIN pg_type y ON y.oid = a.atttypid
LEFT JOIN pg_collation l ON l.oid = a.attcollation
LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
UNION ALL
SELECT 'constraint', t.name, format('%s.%I', t.name, k.conname),
    concat_ws(' ', pg_get_constraintdef(k.oid), CASE WHEN NOT k.convalidated THEN 'not valid' END)
FROM tables t JOIN pg_constraint k ON k.conrelid = t.oid
WHERE k.contype <> 't'
UNION ALL
SELECT 'index', t.name, format('%s.%I', t.name, c.relname),
    concat_ws(' ', pg_get_indexdef(i.indexrelid), CASE WHEN NOT i.indisvalid THEN 'invalid' END,
        CASE WHEN i.indisreplident THEN 'replica identity' END)
FROM tables t JOIN pg_index i ON i.indrelid = t.oid JOIN pg_class c ON c.oid = i.indexrelid
UNION ALL
SELECT 'trigger', t.name, format('%s.%I', t.name, g.tgname),
    concat_ws(' ', pg_get_triggerdef(g.oid), g.tgenabled)
FROM tables t JOIN pg_trigger g ON g.tgrelid = t.oid WHERE NOT g.tgisinternal
UNION ALL
SELECT 'policy', t.name, format('%s.%I', t.name, p.polname),
    concat_ws(' ', p.polcmd, p.polpermissive, pg_get_expr(p.polqual, p.polrelid),
        'check ' || pg_get_expr(p.polwithcheck, p.polrelid),
        (SELECT string_agg(CASE r WHEN 0 THEN 'public' ELSE pg_get_userbyid(r)::text END, ','
            ORDER BY CASE r WHEN 0 THEN 'public' ELSE pg_get_userbyid(r)::text END)
         FROM unnest(p.polroles) AS r))
FROM tables t JOIN pg_policy p ON p.polrelid = t.oid
UNION ALL
SELECT 'rights', t.name, t.name,
    (SELECT string_agg(concat_ws(' ', CASE g.grantee WHEN 0 THEN 'public'
            ELSE pg_get_userbyid(g.grantee)::text END, g.privilege_type, g.is_grantable), ', '
        ORDER BY CASE g.grantee WHEN 0 THEN 'public' ELSE pg_get_userbyid(g.grantee)::text END,
            g.privilege_type, g.is_grantable)
     FROM aclexplode(coalesce(t.relacl, acldefault('r', t.relowner))) AS g)
FROM tables t
UNION ALL
SELECT 'function', NULL, format('%I.%I(%s)', n.nspname, p.proname,
        pg_get_function_identity_arguments(p.oid)),
    md5(pg_get_functiondef(p.oid))
FROM pg_proc p JOIN mine n ON n.oid = p.pronamespace
WHERE p.prokind IN ('f', 'p') AND p.oid >= 16384
UNION ALL
-- What ordinary roles have.
SELECT 'owner', NULL, concat_ws(' ', o.kind, o.name), quote_ident(r.rolname) FROM (
    SELECT 'relation', format('%I.%I', n.nspname, c.relname), c.relowner
        FROM pg_class c JOIN mine n ON n.oid = c.relnamespace WHERE c.relkind IN ('r', 'p', 'v', 'm', 'S', 'f')
    UNION ALL SELECT 'routine', format('%I.%I(%s)', n.nspname, p.proname, pg_get_function_identity_arguments(p.oid)), p.proowner
        FROM pg_proc p JOIN mine n ON n.oid = p.pronamespace
    UNION ALL SELECT 'type', format('%I.%I', n.nspname, y.typname), y.typowner
        FROM pg_type y JOIN mine n ON n.oid = y.typnamespace WHERE y.typtype IN ('d', 'e', 'r')
    UNION ALL SELECT 'operator', o.oid::regoperator::text, o.oprowner
        FROM pg_operator o JOIN mine n ON n.oid = o.oprnamespace
    UNION ALL SELECT 'collation', format('%I.%I', n.nspname, l.collname), l.collowner
        FROM pg_collation l JOIN mine n ON n.oid = l.collnamespace
    UNION ALL SELECT 'schema', quote_ident(n.nspname), s.nspowner FROM mine n JOIN pg_namespace s ON s.oid = n.oid
    ) AS o (kind, name, owner) JOIN pg_roles r ON r.oid = o.owner AND NOT r.rolsuper AND r.oid >= 16384
UNION ALL
SELECT 'role', NULL, quote_ident(r.rolname), concat_ws(' ', CASE WHEN r.rolsuper THEN 'superuser' END,
        'inherits ' || r.rolinherit, 'createrole ' || r.rolcreaterole, 'createdb ' || r.rolcreatedb,
        'login ' || r.rolcanlogin, 'replication ' || r.rolreplication, 'bypassrls ' || r.rolbypassrls,
        'connections ' || r.rolconnlimit, 'until ' || nullif(r.rolvaliduntil, 'infinity'),
        (SELECT string_agg(concat_ws(' ', 'of', quote_ident(g.rolname), CASE WHEN m.admin_option THEN 'admin' END), ', '
            ORDER BY g.rolname)
         FROM pg_auth_members m JOIN pg_roles g ON g.oid = m.roleid WHERE m.member = r.oid),
        (SELECT string_agg(concat_ws(' ', 'set', c), ', ' ORDER BY c)
         FROM pg_db_role_setting s CROSS JOIN unnest(s.setconfig) AS c
         WHERE s.setrole = r.oid AND s.setdatabase IN (0, (SELECT d.oid FROM pg_database d WHERE d.datname = current_database()))))
FROM pg_roles r WHERE r.oid >= 16384
UNION ALL
SELECT 'schema', NULL, quote_ident(n.nspname), concat_ws(' ', 'of', quote_ident(pg_get_userbyid(n.nspowner)),
    (SELECT string_agg(concat_ws(' ', CASE g.grantee WHEN 0 THEN 'public' ELSE pg_get_userbyid(g.grantee)::text END,
            g.privilege_type, g.is_grantable), ', ' ORDER BY g.grantee = 0, pg_get_userbyid(g.grantee), g.privilege_type)
     FROM aclexplode(coalesce(n.nspacl, acldefault('n', n.nspowner))) AS g WHERE g.grantee <> n.nspowner))
FROM pg_namespace n WHERE n.oid IN (SELECT m.oid FROM mine m)
UNION ALL
SELECT 'type', NULL, format('%I.%I', n.nspname, y.typname), concat_ws(' ', 'of kind', y.typtype, 'of', quote_ident(pg_get_userbyid(y.typowner)))
FROM pg_type y JOIN mine n ON n.oid = y.typnamespace LEFT JOIN pg_class c ON c.oid = y.typrelid
WHERE y.oid >= 16384 AND y.typcategory <> 'A' AND coalesce(c.relkind, 'c') = 'c'
UNION ALL
SELECT 'enum', NULL, format('%I.%I', n.nspname, y.typname),
    (SELECT string_agg(quote_literal(e.enumlabel), ', ' ORDER BY e.enumsortorder)
     FROM pg_enum e WHERE e.enumtypid = y.oid)
FROM pg_type y JOIN mine n ON n.oid = y.typnamespace WHERE y.typtype = 'e'
UNION ALL
SELECT 'domain', NULL, format('%I.%I', n.nspname, y.typname),
    concat_ws(' ', format_type(y.typbasetype, y.typtypmod), y.typnotnull, pg_get_expr(y.typdefaultbin, 0),
        (SELECT string_agg(pg_get_constraintdef(k.oid), ', ' ORDER BY k.conname)
         FROM pg_constraint k WHERE k.contypid = y.oid))
FROM pg_type y JOIN mine n ON n.oid = y.typnamespace WHERE y.typtype = 'd'
UNION ALL
SELECT 'composite', NULL, format('%I.%I', n.nspname, c.relname),
    (SELECT string_agg(concat_ws(' ', a.attname, format_type(a.atttypid, a.atttypmod)), ', '
        ORDER BY a.attnum)
     FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped)
FROM pg_class c JOIN mine n ON n.oid = c.relnamespace WHERE c.relkind = 'c'
UNION ALL
SELECT 'sequence', NULL, format('%I.%I', n.nspname, c.relname),
    concat_ws(' ', format_type(q.seqtypid, NULL), q.seqincrement, q.seqmin, q.seqmax)
FROM pg_sequence q JOIN pg_class c ON c.oid = q.seqrelid JOIN mine n ON n.oid = c.relnamespace
WHERE c.relpersistence <> 't'
UNION ALL
-- A sequence outside node 1 gives no value.
SELECT 'armed', NULL, format('%I.%I', n.nspname, c.relname), 'can give values'
FROM pg_sequence q JOIN pg_class c ON c.oid = q.seqrelid JOIN mine n ON n.oid = c.relnamespace
WHERE c.relpersistence <> 't' AND (SELECT node FROM tutti.cluster) <> 1
    AND (q.seqcycle OR pg_sequence_last_value(q.seqrelid::regclass)
        IS DISTINCT FROM CASE WHEN q.seqincrement > 0 THEN q.seqmax ELSE q.seqmin END)
UNION ALL
-- The schema tutti itself.
SELECT 'tutti', NULL, format('function %s(%s)', p.proname, pg_get_function_identity_arguments(p.oid)),
    md5(concat_ws(' ', pg_get_functiondef(p.oid), (
        SELECT string_agg(concat_ws(' ', CASE g.grantee WHEN 0 THEN 'public'
            WHEN p.proowner THEN 'owner' ELSE pg_get_userbyid(g.grantee)::text END,
            g.privilege_type), ', ' ORDER BY g.grantee = 0, g.grantee = p.proowner, g.grantee)
        FROM aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) AS g)))
FROM pg_proc p WHERE p.pronamespace = 'tutti'::regnamespace
UNION ALL
SELECT 'tutti', NULL, 'table ' || c.relname, concat_ws(' ', c.relkind, c.relpersistence,
    c.relrowsecurity, (SELECT string_agg(concat_ws(' ', a.attname, format_type(a.atttypid, a.atttypmod)),
        ', ' ORDER BY a.attname) FROM pg_attribute a
     WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped),
    (SELECT string_agg(concat_ws(' ', CASE g.grantee WHEN 0 THEN 'public'
        ELSE pg_get_userbyid(g.grantee)::text END, g.privilege_type), ', '
        ORDER BY g.grantee = 0, pg_get_userbyid(g.grantee), g.privilege_type)
     FROM aclexplode(c.relacl) AS g WHERE g.grantee <> c.relowner),
    (SELECT string_agg(pg_get_constraintdef(k.oid), ', ' ORDER BY k.conname)
     FROM pg_constraint k WHERE k.conrelid = c.oid AND k.contype IN ('p', 'u')))
FROM pg_class c WHERE c.relnamespace = 'tutti'::regnamespace AND c.relkind IN ('r', 'v', 'S')
UNION ALL
-- Node 1 has none (catalog/guard.sql).
SELECT 'tutti', NULL, 'guard of the schema', CASE WHEN (SELECT node FROM tutti.cluster) = 1 OR EXISTS (
    SELECT FROM pg_event_trigger e WHERE e.evtname = 'tutti_guard' AND e.evtenabled = 'A'
        AND e.evtfoid = 'tutti.guard_schema'::regproc) THEN 'on' ELSE 'off' END
UNION ALL
SELECT 'tutti', NULL, 'version of the schema', shape::text FROM tutti.secret
UNION ALL
SELECT 'tutti', NULL, 'list of nodes', string_agg(id::text, ', ' ORDER BY id) FROM tutti.node
UNION ALL
SELECT 'map', NULL, 'map ' || m.id, concat_ws(' ', m.key_family, count(b.bucket),
    md5(string_agg(b.node::text, ',' ORDER BY b.bucket)), md5(m.splits::text))
FROM tutti.map m LEFT JOIN tutti.bucket b ON b.map = m.id GROUP BY m.id, m.key_family, m.splits
UNION ALL
SELECT 'placement of nothing', NULL, 'OID ' || p.relation, p.kind
FROM tutti.placement p WHERE NOT EXISTS (SELECT FROM pg_class c WHERE c.oid = p.relation);
