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

-- Runs a statement whose $1 are rows and whose $2 are their texts, which says how many rows it has written and what
-- these are. Code that it runs finds the rows in no statement's text.
CREATE OR REPLACE FUNCTION tutti.run_step(step text, given anyarray, texts text[], OUT count bigint, OUT stored text[])
LANGUAGE plpgsql AS $tutti$
BEGIN
    EXECUTE step INTO count, stored USING given, texts;
END $tutti$;

-- Whether row security hides rows of a table from its owner.
CREATE OR REPLACE FUNCTION tutti.is_forced_on_owner(relation oid) RETURNS boolean
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $tutti$
BEGIN
    RETURN EXISTS (SELECT FROM pg_class c JOIN pg_roles r ON r.oid = c.relowner
        WHERE c.oid = relation AND c.relrowsecurity AND c.relforcerowsecurity AND NOT r.rolbypassrls AND NOT r.rolsuper);
END $tutti$;

-- What reads all rows of a table, partitions' with their parent's, as they travel.
CREATE OR REPLACE FUNCTION tutti.query_of_rows(named_schema text, named_table text) RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $tutti$
BEGIN
    RETURN (SELECT format('SELECT encode(convert_to(ROW(t.*)::text, ''UTF8''), ''hex'') FROM %s%I.%I AS t',
            CASE c.relkind WHEN 'r' THEN 'ONLY ' END, named_schema, named_table)
        FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE n.nspname = named_schema AND c.relname = named_table);
END $tutti$;

-- The table of that name. A query of its rows is planned as its owner, and its cursor is read by others: nothing in it
-- may be code, so it is of a table, and of all rows. Names are looked up as they are, and this looks as the transaction
-- sees things, which may be long ago: both must find the same, and a table that has become a view has no file.
CREATE OR REPLACE FUNCTION tutti.table_of_rows(named_schema text, named_table text) RETURNS oid
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $tutti$
DECLARE
    relation oid;
    kind "char";
    is_plain boolean;
BEGIN
    SELECT c.oid, c.relkind, c.relkind IN ('r', 'p') AND NOT tutti.is_forced_on_owner(c.oid)
        INTO relation, kind, is_plain
        FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE n.nspname = named_schema AND c.relname = named_table;
    IF to_regclass(format('%I.%I', named_schema, named_table)) IS DISTINCT FROM relation::regclass
        OR kind = 'r' AND pg_relation_filenode(relation) IS NULL THEN
        is_plain := false;
    END IF;
    IF is_plain IS NOT TRUE THEN
        RAISE insufficient_privilege USING
            MESSAGE = format('rows of "%s" cannot be read or moved', named_table),
            DETAIL = 'It is no table any more, or row security is forced on its owner.';
    END IF;
    RETURN relation;
END $tutti$;

CREATE OR REPLACE FUNCTION tutti.table_rows_as_owner(named_schema text, named_table text, seal text)
RETURNS SETOF text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    SET DateStyle = 'ISO, MDY' SET IntervalStyle = iso_8601 SET extra_float_digits = 1
    SET bytea_output = hex SET xmloption = content SET lc_monetary = 'C' SET array_nulls = on AS $tutti$
DECLARE
    message text;
    owner name;
    statement text;
    moving refcursor := 'tutti_rows';
    row_text text;
BEGIN
    SELECT 'rows ' || string_agg(octet_length(part) || ':' || part, '' ORDER BY position)
        INTO message
        FROM unnest(ARRAY[named_schema, named_table]) WITH ORDINALITY AS u (part, position);
    IF tutti.is_sealed(message, seal) IS NOT TRUE THEN
        RAISE insufficient_privilege USING MESSAGE = 'only a gateway can read a table this way';
    END IF;
    SELECT r.rolname, tutti.query_of_rows(named_schema, named_table)
        INTO owner, statement
        FROM pg_class c JOIN pg_roles r ON r.oid = c.relowner
        WHERE c.oid = tutti.table_of_rows(named_schema, named_table);
    -- Planning alone computes what is constant in the expressions of a table's indexes and statistics. The gateway
    -- has locked the table, so nobody makes any; but what was made since the snapshot of the transaction, the
    -- question for it does not see: then its owner reads it, who may do no more there. (What that makes would be taken
    -- for a change of the schema by code that is accounted for.)
    IF current_setting('transaction_isolation') = 'read committed' OR EXISTS (
        SELECT FROM pg_roles r WHERE r.rolname = owner AND r.rolsuper) THEN
        IF tutti.runs_code(named_schema, named_table) THEN
            RAISE insufficient_privilege USING MESSAGE = 'code of users cannot run as the owner of the schema tutti';
        END IF;
        RETURN QUERY EXECUTE statement;
        RETURN;
    END IF;
    statement := 'DECLARE tutti_rows NO SCROLL CURSOR FOR ' || statement;
    PERFORM tutti.run_as(owner, statement, '', 'pg_catalog, pg_temp');
    LOOP
        FETCH moving INTO row_text;
        EXIT WHEN NOT FOUND;
        RETURN NEXT row_text;
    END LOOP;
    CLOSE moving;
END $tutti$;

CREATE OR REPLACE FUNCTION tutti.table_rows(named_schema text, named_table text, seal text)
RETURNS SETOF text
LANGUAGE plpgsql SECURITY INVOKER SET search_path = pg_catalog, pg_temp
    SET DateStyle = 'ISO, MDY' SET IntervalStyle = iso_8601 SET extra_float_digits = 1
    SET bytea_output = hex SET xmloption = content SET lc_monetary = 'C' SET array_nulls = on AS $tutti$
BEGIN
    IF NOT tutti.is_clients(named_schema, named_table) THEN
        RETURN QUERY SELECT * FROM tutti.table_rows_as_owner(named_schema, named_table, seal);
        RETURN;
    END IF;
    IF row_security_active(format('%I.%I', named_schema, named_table)) THEN
        PERFORM tutti.refuse_hidden(named_table);
    END IF;
    RETURN QUERY EXECUTE tutti.query_of_rows(named_schema, named_table);
END $tutti$;
COMMENT ON FUNCTION tutti.table_rows IS 'All rows of a replicated table, for its copies to be compared with. The caller must be a gateway.';

CREATE OR REPLACE FUNCTION tutti.refuse_hidden(named_table text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $tutti$
BEGIN
    RAISE feature_not_supported USING
        MESSAGE = format('this write to "%s" cannot be brought to all nodes', named_table),
        DETAIL = 'The table has code of its owner''s, which runs as the client only, or row security that is forced on its owner, and row security hides rows from the client.',
        HINT = 'Name the rows by primary key and leave the key as it is, or send the values from the client.';
END $tutti$;

CREATE OR REPLACE FUNCTION tutti.refuse_comparison(named_table text, foreign_key text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $tutti$
BEGIN
    RAISE feature_not_supported USING
        MESSAGE = format('this write to "%s" cannot be brought to all nodes', named_table),
        DETAIL = format('Which rows it has written can only be found out by comparing all of them, and the foreign key %s points to the table.', foreign_key),
        HINT = 'Name the rows by primary key and leave the key as it is, or send the values from the client.';
END $tutti$;
COMMENT ON FUNCTION tutti.refuse_comparison IS 'Says why rows of a replicated table that are taken out or changed cannot be found out by comparison.';

-- Whether reading a table, or storing a row in it, runs code that anybody may have written, or that runs such:
-- checks, generated columns, indexes and statistics (planning computes what is constant in them), types,
-- triggers that fire in replicas, or behind the rows that foreign keys reach. Built-in functions that are
-- IMMUTABLE look at their arguments, but for one (tutti.asks_for_partition).
CREATE OR REPLACE FUNCTION tutti.has_code(expression pg_node_tree) RETURNS boolean
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $tutti$
BEGIN
    -- CURRENT_USER and its like, whose values are those of who runs them.
    RETURN strpos(expression::text, '{SQLVALUEFUNCTION') > 0 OR EXISTS (SELECT FROM regexp_matches(expression::text, ':(?:op|hash|neg)?funcid ([0-9]+)', 'g') AS m (id)
        WHERE m.id[1] <> '0' AND (tutti.is_code('pg_proc', m.id[1]::oid)
            OR EXISTS (SELECT FROM pg_proc p WHERE p.oid = m.id[1]::oid AND p.provolatile <> 'i')));
END $tutti$;

CREATE OR REPLACE FUNCTION tutti.runs_code(named_schema text, named_table text) RETURNS boolean
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $tutti$
DECLARE
    found oid;
    tree oid[];
    ancestors oid[];
    reached oid[];
BEGIN
    SELECT c.oid INTO found FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE n.nspname = named_schema AND c.relname = named_table;
    SELECT coalesce(array_agg(p.relid::oid), ARRAY[found]) INTO tree FROM pg_partition_tree(found) p;
    -- A partition's bounds are of its parent's key.
    WITH RECURSIVE up AS (
        SELECT found AS relation UNION SELECT h.inhparent FROM up u JOIN pg_inherits h ON h.inhrelid = u.relation
    ) SELECT array_agg(u.relation) INTO ancestors FROM up u;
    WITH RECURSIVE reaches AS (
        SELECT unnest(tree) AS relation
        UNION SELECT k.conrelid FROM reaches r JOIN pg_constraint k ON k.confrelid = r.relation
            AND k.contype = 'f' AND (k.confdeltype IN ('c', 'n', 'd') OR k.confupdtype IN ('c', 'n', 'd'))
    )
    SELECT array_agg(r.relation) INTO reached FROM reaches r WHERE r.relation <> ALL (tree);
    RETURN EXISTS (SELECT FROM pg_attribute a
            WHERE a.attrelid = ANY (tree) AND a.attnum > 0 AND NOT a.attisdropped AND a.atttypid >= 16384
                AND tutti.is_code('pg_type', a.atttypid))
        OR EXISTS (SELECT FROM pg_constraint k WHERE k.conrelid = ANY (tree) AND tutti.has_code(k.conbin))
        OR EXISTS (SELECT FROM pg_attribute a JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
            WHERE a.attrelid = ANY (tree) AND a.attgenerated <> '' AND tutti.has_code(d.adbin))
        OR EXISTS (SELECT FROM pg_index i WHERE i.indrelid = ANY (tree)
            AND (tutti.has_code(i.indexprs) OR tutti.has_code(i.indpred)))
        OR EXISTS (SELECT FROM pg_partitioned_table p WHERE p.partrelid = ANY (tree || ancestors)
            AND tutti.has_code(p.partexprs))
        OR EXISTS (SELECT FROM pg_statistic_ext s WHERE s.stxrelid = ANY (tree) AND tutti.has_code(s.stxexprs))
        OR EXISTS (SELECT FROM pg_trigger t WHERE t.tgrelid = ANY (reached) AND NOT t.tgisinternal
            AND t.tgenabled <> 'D')
        -- Operators, and types in casts.
        OR EXISTS (SELECT FROM (
                SELECT 'pg_constraint'::regclass, k.oid FROM pg_constraint k
                    WHERE k.conrelid = ANY (tree) AND k.contype IN ('c', 'x')
                UNION ALL SELECT 'pg_class', i.indexrelid FROM pg_index i WHERE i.indrelid = ANY (tree)
                UNION ALL SELECT 'pg_class', r.oid FROM unnest(tree || ancestors) AS r (oid)
                UNION ALL SELECT 'pg_statistic_ext', s.oid FROM pg_statistic_ext s WHERE s.stxrelid = ANY (tree)
                UNION ALL SELECT 'pg_attrdef', f.oid FROM pg_attribute a
                    JOIN pg_attrdef f ON f.adrelid = a.attrelid AND f.adnum = a.attnum
                    WHERE a.attrelid = ANY (tree) AND a.attgenerated <> '') AS o (class, object)
            JOIN pg_depend d ON d.classid = o.class AND d.objid = o.object
            WHERE d.refobjid >= 16384 AND (d.classid <> 'pg_class'::regclass OR d.objsubid = 0)
                AND tutti.is_code(d.refclassid, d.refobjid))
        OR EXISTS (SELECT FROM pg_trigger t WHERE t.tgrelid = ANY (tree) AND t.tgenabled = 'A')
        OR EXISTS (SELECT FROM pg_rewrite r WHERE r.ev_class = ANY (tree) AND r.ev_enabled = 'A');
END $tutti$;

-- Whether rows are read and stored as the client: his rights hold for the table's code as on one server, and its
-- owner, who would do it elsewhere, does not see all rows where row security is forced on him.
CREATE OR REPLACE FUNCTION tutti.is_clients(named_schema text, named_table text) RETURNS boolean
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $tutti$
BEGIN
    RETURN tutti.runs_code(named_schema, named_table) OR EXISTS (
        SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE n.nspname = named_schema AND c.relname = named_table AND tutti.is_forced_on_owner(c.oid));
END $tutti$;

-- Whether triggers or rules have run on node 1 for this write, and must not run again.
CREATE OR REPLACE FUNCTION tutti.have_run_at_home(named_schema text, named_table text, kind text) RETURNS boolean
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $tutti$
DECLARE
    tree oid[];
    fires integer := CASE kind WHEN 'insert' THEN 4 WHEN 'update' THEN 16 WHEN 'delete' THEN 8
        WHEN 'upsert' THEN 20 ELSE 28 END;
BEGIN
    SELECT array_agg(t.oid) INTO tree FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace,
        LATERAL (SELECT c.oid UNION SELECT p.relid FROM pg_partition_tree(c.oid) p) AS t (oid)
        WHERE n.nspname = named_schema AND c.relname = named_table;
    RETURN kind = 'whole' OR EXISTS (SELECT FROM pg_trigger t WHERE t.tgrelid = ANY (tree) AND NOT t.tgisinternal
            AND t.tgenabled IN ('O', 'A') AND t.tgtype & fires <> 0)
        OR EXISTS (SELECT FROM pg_rewrite r WHERE r.ev_class = ANY (tree) AND r.ev_type <> '1');
END $tutti$;

-- What triggers and rules had to do, they have done on node 1.
DROP FUNCTION IF EXISTS tutti.turn_triggers_off(text);
CREATE OR REPLACE FUNCTION tutti.turn_triggers_off(named_schema text, named_table text, kind text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $tutti$
DECLARE
    fires integer := CASE kind WHEN 'insert' THEN 4 WHEN 'update' THEN 16 WHEN 'delete' THEN 8
        WHEN 'upsert' THEN 20 ELSE 28 END;
BEGIN
    IF current_setting('session_replication_role') = 'replica' THEN
        RETURN;
    END IF;
    BEGIN
        PERFORM set_config('session_replication_role', 'replica', true);
    EXCEPTION WHEN insufficient_privilege THEN
        RAISE feature_not_supported USING
            MESSAGE = format('rows of "%s" cannot be stored on all nodes by this statement', named_table),
            DETAIL = 'Storing them runs code that its owner may have written, so only under the role of the client; and that may not turn off the triggers, which have run on node 1.',
            HINT = 'GRANT SET ON PARAMETER session_replication_role to the role, or do without the table''s triggers and rules.';
    END;
    -- What is enabled for replicas does not run on node 1, and must not here.
    IF EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace,
            LATERAL (SELECT c.oid UNION SELECT p.relid FROM pg_partition_tree(c.oid) p) AS r (oid)
            JOIN pg_trigger t ON t.tgrelid = r.oid AND t.tgenabled = 'R' AND t.tgtype & fires <> 0
            WHERE n.nspname = named_schema AND c.relname = named_table) THEN
        RAISE feature_not_supported USING
            MESSAGE = format('rows of "%s" cannot be stored on all nodes by this statement',
                named_table),
            DETAIL = 'A trigger that is enabled REPLICA would run on the other nodes, where others must not run.',
            HINT = 'Disable the trigger, or keep the table on one node.';
    END IF;
END $tutti$;

-- As the caller. `path`: the search path of what storing a row runs. What goes wrong is told without the
-- statements inside: rows stand in them.
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
    role_before text := current_setting('session_replication_role');
    run text;
    steps text[];
    step text;
    asked text;
    count_written bigint;
    count_step bigint;
    foreign_key text;
    is_lasting boolean;
    m text; d text; h text; e text; s text; t text; c text; y text; k text;
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
    -- $1: the rows, $2: their texts.
    source := 'pg_catalog.unnest($1) AS u';
    run := format('SELECT s.* FROM tutti.run_step($1, tutti.rows_input($2, NULL::%I.%I[]), $3) AS s',
        named_schema, named_table);
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
    IF tutti.have_run_at_home(named_schema, named_table, kind) THEN
        IF kind = 'delete' AND EXISTS (SELECT FROM pg_constraint k
            WHERE k.contype = 'f' AND k.confrelid = ANY (tree)) THEN
            RAISE feature_not_supported USING
                MESSAGE = format('rows of "%s" cannot be removed on all nodes by this statement',
                    named_table),
                DETAIL = 'It has triggers or rules, which run on node 1 alone, and foreign keys that point to it, which must be checked on all nodes.',
                HINT = 'Drop the trigger or the foreign key, or keep the table on one node.';
        END IF;
        PERFORM tutti.turn_triggers_off(named_schema, named_table, kind);
    END IF;
    -- Each step says how many rows it has written, and what they are.
    IF kind = 'insert' THEN
        steps := ARRAY[format('WITH w AS (INSERT INTO %I.%I AS t (%s) OVERRIDING SYSTEM VALUE
            SELECT %s FROM %s RETURNING ROW(t.*)::pg_catalog.text AS r)
            SELECT pg_catalog.count(*), pg_catalog.array_agg(r ORDER BY r COLLATE pg_catalog."C") FROM w',
            named_schema, named_table, inserted, taken, source)];
    ELSIF kind = 'upsert' THEN
        steps := ARRAY[format('WITH w AS (INSERT INTO %I.%I AS t (%s) OVERRIDING SYSTEM VALUE
            SELECT %s FROM %s ON CONFLICT (%s) DO UPDATE SET %s RETURNING ROW(t.*)::pg_catalog.text AS r)
            SELECT pg_catalog.count(*), pg_catalog.array_agg(r ORDER BY r COLLATE pg_catalog."C") FROM w',
            named_schema, named_table, inserted, taken, source, key_columns,
            coalesce(replaced, format('%1$s = excluded.%1$s', first_key)))];
    ELSIF kind = 'update' THEN
        IF changed IS NULL THEN
            RETURN 0;
        END IF;
        steps := ARRAY[format('WITH w AS (UPDATE %I.%I AS t SET %s FROM %s WHERE %s
            RETURNING ROW(t.*)::pg_catalog.text AS r)
            SELECT pg_catalog.count(*), pg_catalog.array_agg(r ORDER BY r COLLATE pg_catalog."C") FROM w',
            named_schema, named_table, changed, source, key_match)];
    ELSIF kind = 'delete' THEN
        steps := ARRAY[format('WITH w AS (DELETE FROM %I.%I AS t USING %s WHERE %s RETURNING 1)
            SELECT pg_catalog.count(*), NULL::pg_catalog.text[] FROM w',
            named_schema, named_table, source, key_match)];
    ELSIF key_match IS NOT NULL THEN
        IF foreign_key IS NOT NULL THEN
            asked := format('SELECT pg_catalog.count(*), NULL::pg_catalog.text[] FROM %s AS t
                WHERE NOT EXISTS (SELECT FROM %s WHERE %s)', target, source, key_match);
        END IF;
        steps := ARRAY[
            format('WITH w AS (DELETE FROM %s AS t WHERE NOT EXISTS (SELECT FROM %s WHERE %s) RETURNING 1)
                SELECT pg_catalog.count(*), NULL::pg_catalog.text[] FROM w', target, source, key_match),
            format('WITH w AS (UPDATE %s AS t SET %s FROM %s
                WHERE %s AND ROW(t.*)::pg_catalog.text OPERATOR(pg_catalog.<>) ROW(u.*)::pg_catalog.text RETURNING 1)
                SELECT pg_catalog.count(*), NULL::pg_catalog.text[] FROM w', target, changed, source, key_match),
            format('WITH w AS (INSERT INTO %I.%I AS t (%s) OVERRIDING SYSTEM VALUE SELECT %s FROM %s
                WHERE NOT EXISTS (SELECT FROM %s AS t WHERE %s) RETURNING 1)
                SELECT pg_catalog.count(*), NULL::pg_catalog.text[] FROM w',
                named_schema, named_table, inserted, taken, source, target, key_match)];
        IF changed IS NULL THEN
            steps := ARRAY[steps[1], steps[3]];
        END IF;
    ELSE
        -- Without a key a row is known by all it has, and by how many are like it.
        steps := ARRAY[
            format('WITH w AS (DELETE FROM %1$s AS t USING
                    (SELECT t.tableoid AS o, t.ctid AS c, ROW(t.*)::pg_catalog.text AS r,
                        pg_catalog.row_number() OVER (PARTITION BY ROW(t.*)::pg_catalog.text) AS n
                     FROM %1$s AS t) AS there
                LEFT JOIN (SELECT r, pg_catalog.count(*) AS n FROM pg_catalog.unnest($2) AS r GROUP BY r) AS due
                    ON due.r OPERATOR(pg_catalog.=) there.r
                WHERE t.tableoid OPERATOR(pg_catalog.=) there.o AND t.ctid OPERATOR(pg_catalog.=) there.c
                    AND there.n OPERATOR(pg_catalog.>) coalesce(due.n, 0) RETURNING 1)
                SELECT pg_catalog.count(*), NULL::pg_catalog.text[] FROM w', target),
            format('WITH w AS (INSERT INTO %I.%I AS t (%s) OVERRIDING SYSTEM VALUE
                SELECT %s FROM (SELECT u.*, ROW(u.*)::pg_catalog.text AS tutti_row,
                    pg_catalog.row_number() OVER (PARTITION BY ROW(u.*)::pg_catalog.text) AS tutti_number FROM %s) AS u
                LEFT JOIN (SELECT ROW(t.*)::pg_catalog.text AS r, pg_catalog.count(*) AS n FROM %s AS t GROUP BY 1) AS there
                    ON there.r OPERATOR(pg_catalog.=) u.tutti_row
                WHERE u.tutti_number OPERATOR(pg_catalog.>) coalesce(there.n, 0) RETURNING 1)
                SELECT pg_catalog.count(*), NULL::pg_catalog.text[] FROM w',
                named_schema, named_table, inserted, taken, source, target)];
    END IF;
    IF asked IS NOT NULL THEN
        EXECUTE run INTO count_written, stored USING asked, written::text, written;
        PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
        IF count_written > 0 THEN
            PERFORM tutti.refuse_comparison(named_table, foreign_key);
        END IF;
    END IF;
    count_written := 0;
    FOREACH step IN ARRAY steps LOOP
        IF path IS NOT NULL THEN
            PERFORM set_config('search_path', path, true);
        END IF;
        EXECUTE run INTO count_step, stored USING step, written::text, written;
        -- Before anything else: code of other roles', behind foreign keys, say, runs there, and what it sets is set here.
        PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
        count_written := count_written + count_step;
    END LOOP;
    IF current_setting('session_replication_role') <> role_before THEN
        PERFORM set_config('session_replication_role', role_before, true);
    END IF;
    IF kind IN ('all', 'whole') THEN
        EXECUTE format('SELECT pg_catalog.array_agg(ROW(t.*)::pg_catalog.text
                ORDER BY ROW(t.*)::pg_catalog.text COLLATE pg_catalog."C")
            FROM %s AS t', target) INTO stored;
        PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
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
EXCEPTION WHEN OTHERS OR query_canceled OR assert_failure THEN
    GET STACKED DIAGNOSTICS m = MESSAGE_TEXT, d = PG_EXCEPTION_DETAIL, h = PG_EXCEPTION_HINT, e = RETURNED_SQLSTATE,
        s = SCHEMA_NAME, t = TABLE_NAME, c = COLUMN_NAME, y = PG_DATATYPE_NAME, k = CONSTRAINT_NAME;
    RAISE EXCEPTION USING MESSAGE = m, DETAIL = d, HINT = h, ERRCODE = e,
        SCHEMA = s, TABLE = t, COLUMN = c, DATATYPE = y, CONSTRAINT = k;
END $tutti$;

-- As the table's owner: the client's rights were used on node 1.
DROP FUNCTION IF EXISTS tutti.store_rows_as_owner(text, text, text, text, text), tutti.write_rows(text, text, text, text, text);
CREATE OR REPLACE FUNCTION tutti.store_rows_as_owner(named_schema text, named_table text, kind text,
    given text, seal text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $tutti$
DECLARE
    message text;
    target oid;
    owner name;
    role_before text := current_setting('session_replication_role');
BEGIN
    SELECT 'write ' || string_agg(octet_length(part) || ':' || part, '' ORDER BY position)
        INTO message
        FROM unnest(ARRAY[named_schema, named_table, kind, encode(sha256(convert_to(given, 'UTF8')),
            'hex')]) WITH ORDINALITY AS u (part, position);
    IF tutti.is_sealed(message, seal) IS NOT TRUE THEN
        RAISE insufficient_privilege USING MESSAGE = 'only a gateway can write a table this way';
    END IF;
    target := tutti.table_of_rows(named_schema, named_table);
    SELECT r.rolname INTO owner FROM pg_class c JOIN pg_roles r ON r.oid = c.relowner AND NOT r.rolsuper
        WHERE c.oid = target;
    IF owner IS NULL THEN
        PERFORM tutti.store_rows(named_schema, named_table, kind, given, NULL);
        RETURN;
    END IF;
    IF tutti.have_run_at_home(named_schema, named_table, kind) THEN
        PERFORM tutti.turn_triggers_off(named_schema, named_table, kind);
    END IF;
    -- What runs_code has not seen may have just been made: as the table's owner, who may do no more there.
    PERFORM tutti.run_as(owner, format('SELECT tutti.store_rows(%L, %L, %L, $1, NULL)', named_schema, named_table, kind),
        given, 'pg_catalog, pg_temp', target, as_rows => 'pg_catalog.text');
    IF current_setting('session_replication_role') <> role_before THEN
        PERFORM set_config('session_replication_role', role_before, true);
    END IF;
END $tutti$;

-- Without a search path of its own: that of the session is for the code of the table.
CREATE OR REPLACE FUNCTION tutti.write_rows(named_schema text, named_table text, kind text,
    given text, seal text) RETURNS void
LANGUAGE plpgsql SECURITY INVOKER AS $tutti$
BEGIN
    IF tutti.is_clients(named_schema, named_table) THEN
        IF pg_catalog.row_security_active(pg_catalog.format('%I.%I', named_schema, named_table)) THEN
            PERFORM tutti.refuse_hidden(named_table);
        END IF;
        PERFORM tutti.store_rows(named_schema, named_table, kind, given, pg_catalog.current_setting('search_path'));
    ELSE
        PERFORM tutti.store_rows_as_owner(named_schema, named_table, kind, given, seal);
    END IF;
END $tutti$;
COMMENT ON FUNCTION tutti.write_rows IS 'Stores rows that node 1 has written in this node''s copy of a replicated table. The caller must be a gateway.';

-- What moves rows of a table runs as its owner: planning it and storing rows runs code that the table may have. The
-- table must be locked.
DROP FUNCTION IF EXISTS tutti.begin_storing(text, text, text), tutti.end_storing(text, text, text);
CREATE OR REPLACE FUNCTION tutti.as_owner(named_schema text, named_table text, statement text, given text,
    path text, seal text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $tutti$
DECLARE
    message text;
    target oid;
    owner name;
BEGIN
    SELECT 'as owner ' || string_agg(octet_length(part) || ':' || part, '' ORDER BY position)
        INTO message
        FROM unnest(ARRAY[named_schema, named_table, statement, encode(sha256(convert_to(given, 'UTF8')), 'hex')])
            WITH ORDINALITY AS u (part, position);
    IF tutti.is_sealed(message, seal) IS NOT TRUE THEN
        RAISE insufficient_privilege USING MESSAGE = 'only a gateway can move rows';
    END IF;
    target := tutti.table_of_rows(named_schema, named_table);
    SELECT r.rolname INTO owner FROM pg_class c JOIN pg_roles r ON r.oid = c.relowner AND NOT r.rolsuper
        WHERE c.oid = target;
    -- Which code is harmless, nobody need know.
    IF owner IS NOT NULL THEN
        PERFORM tutti.run_as(owner, statement, given, path, target,
            as_rows => CASE given WHEN '' THEN '' ELSE format('%I.%I[]', named_schema, named_table) END);
    ELSIF given = '' THEN
        EXECUTE statement;
    ELSE
        EXECUTE format('SELECT tutti.run_with_rows($1, tutti.rows_input($2, NULL::%I.%I[]))', named_schema, named_table)
            USING statement, given;
    END IF;
END $tutti$;
COMMENT ON FUNCTION tutti.as_owner IS 'Runs what moves rows of a table as its owner, who may do no more there (tutti.run_as). The caller must be a gateway.';
