-- Functions for writes to replicated tables by row: see docs/protocol/replicated-tables.md.

CREATE OR REPLACE FUNCTION tutti.row_text(of record) RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
    SET DateStyle = 'ISO, MDY' SET IntervalStyle = iso_8601 SET extra_float_digits = 1
    SET bytea_output = hex SET xmloption = content SET lc_monetary = 'C' SET array_nulls = on AS $tutti$
BEGIN
    RETURN encode(convert_to(of::text, 'UTF8'), 'hex');
END $tutti$;
COMMENT ON FUNCTION tutti.row_text IS 'A row as it travels between nodes: its text whatever the settings of the session are, in digits that every encoding of a client has.';

CREATE OR REPLACE FUNCTION tutti.row_output(of record) RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
    SET DateStyle = 'ISO, MDY' SET IntervalStyle = iso_8601 SET extra_float_digits = 1
    SET bytea_output = hex SET xmloption = content SET lc_monetary = 'C' SET array_nulls = on AS $tutti$
BEGIN
    RETURN of::text;
END $tutti$;
COMMENT ON FUNCTION tutti.row_output IS 'A row''s text whatever the settings of the session are.';

CREATE OR REPLACE FUNCTION tutti.value_output(of anyelement) RETURNS text
LANGUAGE plpgsql STABLE STRICT SET search_path = pg_catalog, pg_temp
    SET DateStyle = 'ISO, MDY' SET IntervalStyle = iso_8601 SET extra_float_digits = 1
    SET bytea_output = hex SET xmloption = content SET lc_monetary = 'C' SET array_nulls = on AS $tutti$
BEGIN
    RETURN format('%s', of);
END $tutti$;
COMMENT ON FUNCTION tutti.value_output IS 'A value''s text whatever the settings of the session are.';

-- PostgreSQL takes the locks of a statement at READ COMMITTED before its snapshot. Where the snapshot is older,
-- because it is of the whole cluster, a table that was rewritten, emptied or replaced in between looks empty.
CREATE OR REPLACE FUNCTION tutti.refuse_rewritten(relations oid[]) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $tutti$
BEGIN
    IF EXISTS (
        SELECT FROM unnest(relations) AS r (relation) LEFT JOIN pg_class AS c ON c.oid = r.relation
        WHERE CASE WHEN c.oid IS NULL THEN pg_relation_filenode(r.relation) IS NOT NULL
            ELSE c.relfilenode <> 0 AND c.relfilenode IS DISTINCT FROM pg_relation_filenode(r.relation) END)
    THEN
        RAISE serialization_failure
            USING MESSAGE = 'could not read a table that was rewritten behind the snapshot';
    END IF;
END $tutti$;
COMMENT ON FUNCTION tutti.refuse_rewritten IS 'Fails where the snapshot of the transaction is older than what a table of this node is stored in.';

-- No search path of its own: domains' checks have the session's, as anywhere. The rows are a literal of a
-- statement inside: a text that is returned as rows, or is cast to them, would look for a cast, and that could
-- be of whoever owns the table. What is wrong with them is told without them.
CREATE OR REPLACE FUNCTION tutti.rows_input(given text, as_rows anyarray) RETURNS anyarray
LANGUAGE plpgsql IMMUTABLE
    SET xmloption = content SET lc_monetary = 'C' SET array_nulls = on AS $tutti$
DECLARE
    read as_rows%TYPE;
    rows_type pg_catalog.text;
    wrong pg_catalog.text;
    state pg_catalog.text;
BEGIN
    SELECT pg_catalog.format('%I.%I', n.nspname, t.typname) INTO rows_type
        FROM pg_catalog.pg_type t
        JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) t.typnamespace
        WHERE t.oid OPERATOR(pg_catalog.=) pg_catalog.pg_typeof(as_rows)::pg_catalog.oid;
    EXECUTE pg_catalog.format('SELECT %L::%s', given, rows_type) INTO read;
    RETURN read;
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS wrong = MESSAGE_TEXT, state = RETURNED_SQLSTATE;
    RAISE EXCEPTION USING MESSAGE = wrong, ERRCODE = state;
END $tutti$;
COMMENT ON FUNCTION tutti.rows_input IS 'Rows that tutti.row_output has written, read whatever the settings of the session are.';

CREATE OR REPLACE FUNCTION tutti.table_rows(named_schema text, named_table text, seal text)
RETURNS SETOF text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    SET DateStyle = 'ISO, MDY' SET IntervalStyle = iso_8601 SET extra_float_digits = 1
    SET bytea_output = hex SET xmloption = content SET lc_monetary = 'C' SET array_nulls = on AS $tutti$
DECLARE
    message text;
BEGIN
    SELECT 'rows ' || string_agg(octet_length(part) || ':' || part, '' ORDER BY position)
        INTO message
        FROM unnest(ARRAY[named_schema, named_table]) WITH ORDINALITY AS u (part, position);
    IF tutti.is_sealed(message, seal) IS NOT TRUE THEN
        RAISE insufficient_privilege USING MESSAGE = 'only a gateway can read a table this way';
    END IF;
    RETURN QUERY EXECUTE format(
        'SELECT encode(convert_to(ROW(t.*)::text, ''UTF8''), ''hex'') FROM %s%I.%I AS t',
        (SELECT CASE c.relkind WHEN 'r' THEN 'ONLY ' END
         FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
         WHERE n.nspname = named_schema AND c.relname = named_table),
        named_schema, named_table);
END $tutti$;
COMMENT ON FUNCTION tutti.table_rows IS 'All rows of a replicated table, for its copies to be compared with. The caller must be a gateway.';

CREATE OR REPLACE FUNCTION tutti.refuse_comparison(named_table text, foreign_key text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $tutti$
BEGIN
    RAISE feature_not_supported USING
        MESSAGE = format('this write to "%s" cannot be brought to all nodes', named_table),
        DETAIL = format('Which rows it has written can only be found out by comparing all of them, and the foreign key %s points to the table.', foreign_key),
        HINT = 'Name the rows by primary key and leave the key as it is, or send the values from the client.';
END $tutti$;
COMMENT ON FUNCTION tutti.refuse_comparison IS 'Says why rows of a replicated table that are taken out or changed cannot be found out by comparison.';

-- Whether storing a row of a table runs code that anybody may have written, or that runs such: checks,
-- generated columns, indexes, types, triggers that fire in replicas. Built-in functions that are IMMUTABLE
-- look at their arguments.
CREATE OR REPLACE FUNCTION tutti.has_code(expression pg_node_tree) RETURNS boolean
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $tutti$
BEGIN
    RETURN EXISTS (SELECT FROM regexp_matches(expression::text, ':(?:op|hash|neg)?funcid ([0-9]+)', 'g') AS m (id)
        WHERE m.id[1] <> '0' AND NOT EXISTS (SELECT FROM pg_proc p
            WHERE p.oid = m.id[1]::oid AND p.oid < 16384 AND p.provolatile = 'i'));
END $tutti$;

CREATE OR REPLACE FUNCTION tutti.runs_code(named_schema text, named_table text) RETURNS boolean
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $tutti$
DECLARE
    found oid;
    tree oid[];
BEGIN
    SELECT c.oid INTO found FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE n.nspname = named_schema AND c.relname = named_table;
    SELECT coalesce(array_agg(p.relid::oid), ARRAY[found]) INTO tree FROM pg_partition_tree(found) p;
    RETURN EXISTS (SELECT FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
            LEFT JOIN pg_type e ON e.oid = t.typelem AND t.typcategory = 'A'
            WHERE a.attrelid = ANY (tree) AND a.attnum > 0 AND NOT a.attisdropped AND t.oid >= 16384
                AND coalesce(e.typtype, t.typtype) <> 'e')
        OR EXISTS (SELECT FROM pg_constraint k WHERE k.conrelid = ANY (tree) AND tutti.has_code(k.conbin))
        OR EXISTS (SELECT FROM pg_attribute a JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
            WHERE a.attrelid = ANY (tree) AND a.attgenerated <> '' AND tutti.has_code(d.adbin))
        OR EXISTS (SELECT FROM pg_index i WHERE i.indrelid = ANY (tree)
            AND (tutti.has_code(i.indexprs) OR tutti.has_code(i.indpred)))
        OR EXISTS (SELECT FROM pg_partitioned_table p WHERE p.partrelid = ANY (tree) AND tutti.has_code(p.partexprs))
        -- Operators, their classes, types in casts.
        OR EXISTS (SELECT FROM pg_depend d
            LEFT JOIN pg_type t ON d.refclassid = 'pg_type'::regclass AND t.oid = d.refobjid
            WHERE d.refobjid >= 16384 AND d.refclassid IN ('pg_proc'::regclass, 'pg_operator'::regclass,
                    'pg_opclass'::regclass, 'pg_opfamily'::regclass, 'pg_type'::regclass, 'pg_am'::regclass)
                AND t.typtype IS DISTINCT FROM 'e' AND (
                    d.classid = 'pg_constraint'::regclass AND d.objid IN (
                        SELECT k.oid FROM pg_constraint k WHERE k.conrelid = ANY (tree) AND k.contype IN ('c', 'x'))
                    OR d.classid = 'pg_class'::regclass AND d.objid IN (
                        SELECT i.indexrelid FROM pg_index i WHERE i.indrelid = ANY (tree))
                    OR d.classid = 'pg_class'::regclass AND d.objid = ANY (tree)
                    OR d.classid = 'pg_attrdef'::regclass AND d.objid IN (SELECT f.oid FROM pg_attribute a
                        JOIN pg_attrdef f ON f.adrelid = a.attrelid AND f.adnum = a.attnum
                        WHERE a.attrelid = ANY (tree) AND a.attgenerated <> '')))
        OR EXISTS (SELECT FROM pg_trigger t WHERE t.tgrelid = ANY (tree) AND t.tgenabled = 'A')
        OR EXISTS (SELECT FROM pg_rewrite r WHERE r.ev_class = ANY (tree) AND r.ev_enabled = 'A');
END $tutti$;

CREATE OR REPLACE FUNCTION tutti.turn_triggers_off(named_table text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $tutti$
BEGIN
    PERFORM set_config('session_replication_role', 'replica', true);
EXCEPTION WHEN insufficient_privilege THEN
    RAISE feature_not_supported USING
        MESSAGE = format('rows of "%s" cannot be stored on all nodes by this statement', named_table),
        DETAIL = 'Storing them runs code that its owner may have written, so only under the role of the client; and that may not turn off the triggers, which have run on node 1.',
        HINT = 'GRANT SET ON PARAMETER session_replication_role to the role, or do without the table''s triggers and rules.';
END $tutti$;

-- As the caller. `path`: the search path of what storing a row runs.
CREATE OR REPLACE FUNCTION tutti.store_rows(named_schema text, named_table text, kind text,
    given text, path text) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
    SET DateStyle = 'ISO, MDY' SET IntervalStyle = iso_8601 SET extra_float_digits = 1
    SET bytea_output = hex SET xmloption = content SET lc_monetary = 'C' SET array_nulls = on AS $tutti$
DECLARE
    found oid;
    tree oid[];
    target text;
    written text[];
    source text;
    stored text[];
    key_columns text;
    key_match text;
    first_key text;
    inserted text;
    taken text;
    changed text;
    replaced text;
    fires integer := CASE kind WHEN 'insert' THEN 4 WHEN 'update' THEN 16 WHEN 'delete' THEN 8
        WHEN 'upsert' THEN 20 ELSE 28 END;
    role_before text := current_setting('session_replication_role');
    count_written bigint;
    count_step bigint;
    foreign_key text;
    is_lasting boolean;
BEGIN
    SELECT c.oid, format('%s%I.%I', CASE c.relkind WHEN 'r' THEN 'ONLY ' END, named_schema, named_table)
        INTO found, target
        FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE n.nspname = named_schema AND c.relname = named_table;
    IF found IS NULL THEN
        RAISE undefined_table
            USING MESSAGE = format('relation "%s.%s" does not exist', named_schema, named_table);
    END IF;
    SELECT coalesce(array_agg(p.relid::oid), ARRAY[found]) INTO tree FROM pg_partition_tree(found) p;
    written := ARRAY(SELECT convert_from(decode(piece, 'hex'), 'UTF8')
        FROM string_to_table(given, ',') AS piece);
    IF given = '' THEN
        written := '{}';
    END IF;
    source := format('unnest(%L::%I.%I[]) AS u', written::text, named_schema, named_table);
    SELECT string_agg(quote_ident(a.attname), ', ' ORDER BY a.attnum),
        string_agg('u.' || quote_ident(a.attname), ', ' ORDER BY a.attnum)
        INTO inserted, taken
        FROM pg_attribute a
        WHERE a.attrelid = found AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = '';
    SELECT string_agg(quote_ident(a.attname), ', ' ORDER BY k.position),
        string_agg(format('t.%I OPERATOR(%I.%s) u.%I', a.attname, n.nspname, o.oprname, a.attname),
            ' AND ' ORDER BY k.position),
        min(quote_ident(a.attname)) FILTER (WHERE k.position = 1)
        INTO key_columns, key_match, first_key
        FROM pg_index i
        CROSS JOIN LATERAL unnest(i.indkey::int2[], i.indclass::oid[])
            WITH ORDINALITY AS k (attnum, opclass, position)
        JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
        JOIN pg_opclass c ON c.oid = k.opclass
        JOIN pg_amop p ON p.amopfamily = c.opcfamily AND p.amoplefttype = c.opcintype
            AND p.amoprighttype = c.opcintype AND p.amopstrategy = 3
        JOIN pg_operator o ON o.oid = p.amopopr JOIN pg_namespace n ON n.oid = o.oprnamespace
        WHERE i.indrelid = found AND i.indisprimary AND i.indisvalid;
    SELECT string_agg(format('%1$I = u.%1$I', a.attname), ', '),
        string_agg(format('%1$I = excluded.%1$I', a.attname), ', ')
        INTO changed, replaced
        FROM pg_attribute a
        WHERE a.attrelid = found AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
            AND a.attidentity <> 'a'
            AND NOT EXISTS (SELECT FROM pg_index i WHERE i.indrelid = found AND i.indisprimary
                AND a.attnum = ANY (i.indkey::int2[]));
    -- A comparison takes rows out and puts others in, which foreign keys that point here would follow.
    -- Where it is the 'whole', node 1 has done that, and what it reached comes by itself.
    IF kind = 'all' THEN
        SELECT format('%I of %s', k.conname, k.conrelid::regclass), NOT EXISTS (
                SELECT FROM pg_index i WHERE i.indexrelid = k.conindid AND i.indisprimary)
            INTO foreign_key, is_lasting
            FROM pg_constraint k WHERE k.contype = 'f' AND k.confrelid = ANY (tree)
            ORDER BY 2 DESC, 1 LIMIT 1;
    END IF;
    IF is_lasting THEN
        PERFORM tutti.refuse_comparison(named_table, foreign_key);
    END IF;
    -- What triggers and rules had to do, they have done on node 1.
    IF EXISTS (SELECT FROM pg_trigger t WHERE t.tgrelid = ANY (tree) AND NOT t.tgisinternal
            AND t.tgenabled IN ('O', 'A') AND t.tgtype & fires <> 0)
        OR EXISTS (SELECT FROM pg_rewrite r WHERE r.ev_class = ANY (tree) AND r.ev_type <> '1') THEN
        IF kind = 'delete' AND EXISTS (SELECT FROM pg_constraint k
            WHERE k.contype = 'f' AND k.confrelid = ANY (tree)) THEN
            RAISE feature_not_supported USING
                MESSAGE = format('rows of "%s" cannot be removed on all nodes by this statement',
                    named_table),
                DETAIL = 'It has triggers or rules, which run on node 1 alone, and foreign keys that point to it, which must be checked on all nodes.',
                HINT = 'Drop the trigger or the foreign key, or keep the table on one node.';
        END IF;
        PERFORM tutti.turn_triggers_off(named_table);
    ELSIF kind = 'whole' THEN
        PERFORM tutti.turn_triggers_off(named_table);
    END IF;
    -- What is enabled for replicas does not run on node 1, and must not here.
    IF role_before <> 'replica' AND current_setting('session_replication_role') = 'replica'
        AND EXISTS (SELECT FROM pg_trigger t WHERE t.tgrelid = ANY (tree)
            AND t.tgenabled = 'R' AND t.tgtype & fires <> 0) THEN
        RAISE feature_not_supported USING
            MESSAGE = format('rows of "%s" cannot be stored on all nodes by this statement',
                named_table),
            DETAIL = 'A trigger that is enabled REPLICA would run on the other nodes, where others must not run.',
            HINT = 'Disable the trigger, or keep the table on one node.';
    END IF;
    IF path IS NOT NULL THEN
        PERFORM set_config('search_path', path, true);
    END IF;
    IF kind = 'insert' THEN
        EXECUTE format('WITH w AS (INSERT INTO %I.%I AS t (%s) OVERRIDING SYSTEM VALUE
            SELECT %s FROM %s RETURNING ROW(t.*)::text AS r)
            SELECT array_agg(r ORDER BY r COLLATE "C") FROM w',
            named_schema, named_table, inserted, taken, source) INTO stored;
    ELSIF kind = 'upsert' THEN
        EXECUTE format('WITH w AS (INSERT INTO %I.%I AS t (%s) OVERRIDING SYSTEM VALUE
            SELECT %s FROM %s ON CONFLICT (%s) DO UPDATE SET %s RETURNING ROW(t.*)::text AS r)
            SELECT array_agg(r ORDER BY r COLLATE "C") FROM w',
            named_schema, named_table, inserted, taken, source, key_columns,
            coalesce(replaced, format('%1$s = excluded.%1$s', first_key))) INTO stored;
    ELSIF kind = 'update' THEN
        IF changed IS NULL THEN
            RETURN 0;
        END IF;
        EXECUTE format('WITH w AS (UPDATE %I.%I AS t SET %s FROM %s WHERE %s
            RETURNING ROW(t.*)::text AS r) SELECT array_agg(r ORDER BY r COLLATE "C") FROM w',
            named_schema, named_table, changed, source, key_match) INTO stored;
    ELSIF kind = 'delete' THEN
        EXECUTE format('WITH w AS (DELETE FROM %I.%I AS t USING %s WHERE %s RETURNING 1)
            SELECT count(*) FROM w', named_schema, named_table, source, key_match)
            INTO count_written;
    ELSIF key_match IS NOT NULL THEN
        IF foreign_key IS NOT NULL THEN
            EXECUTE format('SELECT count(*) FROM %s AS t WHERE NOT EXISTS (SELECT FROM %s WHERE %s)',
                target, source, key_match) INTO count_written;
            IF count_written > 0 THEN
                PERFORM tutti.refuse_comparison(named_table, foreign_key);
            END IF;
        END IF;
        EXECUTE format('DELETE FROM %s AS t WHERE NOT EXISTS (SELECT FROM %s WHERE %s)',
            target, source, key_match);
        GET DIAGNOSTICS count_written = ROW_COUNT;
        IF changed IS NOT NULL THEN
            EXECUTE format('UPDATE %s AS t SET %s FROM %s
                WHERE %s AND ROW(t.*)::text <> ROW(u.*)::text', target, changed, source, key_match);
            GET DIAGNOSTICS count_step = ROW_COUNT;
            count_written := count_written + count_step;
        END IF;
        EXECUTE format('INSERT INTO %I.%I AS t (%s) OVERRIDING SYSTEM VALUE SELECT %s FROM %s
            WHERE NOT EXISTS (SELECT FROM %s AS t WHERE %s)',
            named_schema, named_table, inserted, taken, source, target, key_match);
        GET DIAGNOSTICS count_step = ROW_COUNT;
        count_written := count_written + count_step;
    ELSE
        -- Without a key a row is known by all it has, and by how many are like it.
        EXECUTE format('DELETE FROM %1$s AS t USING
                (SELECT t.tableoid AS o, t.ctid AS c, ROW(t.*)::text AS r, row_number() OVER (PARTITION BY ROW(t.*)::text) AS n
                 FROM %1$s AS t) AS there
            LEFT JOIN (SELECT r, count(*) AS n FROM unnest(%2$L::text[]) AS r GROUP BY r) AS due
                ON due.r = there.r
            WHERE t.tableoid = there.o AND t.ctid = there.c AND there.n > coalesce(due.n, 0)',
            target, written::text);
        GET DIAGNOSTICS count_written = ROW_COUNT;
        EXECUTE format('INSERT INTO %I.%I AS t (%s) OVERRIDING SYSTEM VALUE
            SELECT %s FROM (SELECT u.*, ROW(u.*)::text AS tutti_row,
                row_number() OVER (PARTITION BY ROW(u.*)::text) AS tutti_number FROM %s) AS u
            LEFT JOIN (SELECT ROW(t.*)::text AS r, count(*) AS n FROM %s AS t GROUP BY 1) AS there
                ON there.r = u.tutti_row
            WHERE u.tutti_number > coalesce(there.n, 0)',
            named_schema, named_table, inserted, taken, source, target);
        GET DIAGNOSTICS count_step = ROW_COUNT;
        count_written := count_written + count_step;
    END IF;
    IF current_setting('session_replication_role') <> role_before THEN
        PERFORM set_config('session_replication_role', role_before, true);
    END IF;
    IF kind IN ('all', 'whole') THEN
        EXECUTE format('SELECT array_agg(ROW(t.*)::text ORDER BY ROW(t.*)::text COLLATE "C")
            FROM %s AS t', target) INTO stored;
    END IF;
    -- The copy must be what node 1 has, whatever else may run here.
    IF kind = 'delete' AND count_written <> cardinality(written) OR kind <> 'delete'
        AND stored IS DISTINCT FROM
            (SELECT array_agg(r ORDER BY r COLLATE "C") FROM unnest(written) AS r) THEN
        RAISE serialization_failure USING
            MESSAGE = format('could not store the rows of node n1 in the copy of "%s"', named_table),
            HINT = 'Nothing was changed; retry. If it happens without concurrent changes, the copies differ, or a trigger that is enabled ALWAYS changes rows.';
    END IF;
    RETURN coalesce(count_written, cardinality(written));
END $tutti$;

-- As the owner of the schema tutti: the client's rights were used on node 1. Code of users' must not run so.
CREATE OR REPLACE FUNCTION tutti.store_rows_as_owner(named_schema text, named_table text, kind text,
    given text, seal text) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $tutti$
DECLARE
    message text;
BEGIN
    SELECT 'write ' || string_agg(octet_length(part) || ':' || part, '' ORDER BY position)
        INTO message
        FROM unnest(ARRAY[named_schema, named_table, kind, encode(sha256(convert_to(given, 'UTF8')),
            'hex')]) WITH ORDINALITY AS u (part, position);
    IF tutti.is_sealed(message, seal) IS NOT TRUE THEN
        RAISE insufficient_privilege USING MESSAGE = 'only a gateway can write a table this way';
    END IF;
    IF tutti.runs_code(named_schema, named_table) THEN
        RAISE insufficient_privilege USING MESSAGE = 'code of users cannot run as the owner of the schema tutti';
    END IF;
    RETURN tutti.store_rows(named_schema, named_table, kind, given, NULL);
END $tutti$;

-- Without a search path of its own: that of the session is for the code of the table.
CREATE OR REPLACE FUNCTION tutti.write_rows(named_schema text, named_table text, kind text,
    given text, seal text) RETURNS bigint
LANGUAGE plpgsql SECURITY INVOKER AS $tutti$
BEGIN
    IF tutti.runs_code(named_schema, named_table) THEN
        RETURN tutti.store_rows(named_schema, named_table, kind, given, pg_catalog.current_setting('search_path'));
    END IF;
    RETURN tutti.store_rows_as_owner(named_schema, named_table, kind, given, seal);
END $tutti$;
COMMENT ON FUNCTION tutti.write_rows IS 'Stores rows that node 1 has written in this node''s copy of a replicated table. The caller must be a gateway.';

-- Rows of a table that get another place are stored by its owner's function, for storing runs the owner's code.
-- In there nobody can become somebody else again, as after SET ROLE.
CREATE OR REPLACE FUNCTION tutti.begin_storing(named_schema text, named_table text, seal text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $tutti$
DECLARE
    message text;
    found oid;
    found_owner oid;
    inserted text;
    taken text;
BEGIN
    SELECT 'begin ' || string_agg(octet_length(part) || ':' || part, '' ORDER BY position)
        INTO message
        FROM unnest(ARRAY[named_schema, named_table]) WITH ORDINALITY AS u (part, position);
    IF tutti.is_sealed(message, seal) IS NOT TRUE THEN
        RAISE insufficient_privilege USING MESSAGE = 'only a gateway can store rows this way';
    END IF;
    SELECT c.oid, c.relowner INTO found, found_owner
        FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE n.nspname = named_schema AND c.relname = named_table;
    SELECT string_agg(quote_ident(a.attname), ', ' ORDER BY a.attnum),
        string_agg('u.' || quote_ident(a.attname), ', ' ORDER BY a.attnum)
        INTO inserted, taken
        FROM pg_attribute a
        WHERE a.attrelid = found AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = '';
    -- Without a search path of its own: the code of the table has the session's.
    EXECUTE format('CREATE FUNCTION tutti.store_moved(%I.%I[]) RETURNS void LANGUAGE plpgsql SECURITY DEFINER AS %L',
        named_schema, named_table, format(
            'BEGIN INSERT INTO %I.%I (%s) OVERRIDING SYSTEM VALUE SELECT %s FROM pg_catalog.unnest($1) AS u; END',
            named_schema, named_table, inserted, taken));
    EXECUTE format('GRANT EXECUTE ON FUNCTION tutti.store_moved(%I.%I[]) TO PUBLIC', named_schema, named_table);
    EXECUTE format('ALTER FUNCTION tutti.store_moved(%I.%I[]) OWNER TO %s', named_schema, named_table,
        found_owner::regrole);
END $tutti$;
COMMENT ON FUNCTION tutti.begin_storing IS 'Makes, for this transaction, a function of the owner''s of a table that stores rows in it. The caller must be a gateway.';

CREATE OR REPLACE FUNCTION tutti.end_storing(named_schema text, named_table text, seal text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $tutti$
DECLARE
    message text;
BEGIN
    SELECT 'end ' || string_agg(octet_length(part) || ':' || part, '' ORDER BY position)
        INTO message
        FROM unnest(ARRAY[named_schema, named_table]) WITH ORDINALITY AS u (part, position);
    IF tutti.is_sealed(message, seal) IS NOT TRUE THEN
        RAISE insufficient_privilege USING MESSAGE = 'only a gateway can store rows this way';
    END IF;
    EXECUTE format('DROP FUNCTION tutti.store_moved(%I.%I[])', named_schema, named_table);
END $tutti$;
COMMENT ON FUNCTION tutti.end_storing IS 'Takes away what tutti.begin_storing has made.';
