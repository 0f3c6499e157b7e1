-- Unique indexes of spread tables that do not contain the distribution key, by entries (entries.sql). Part of the schema
-- tutti. See docs/decisions/2026-11-27-global-unique.md.

-- `bucket` computes the bucket of the value that stands for {} in it.
CREATE OR REPLACE FUNCTION tutti.make_unique(index_schema text, index_name text, new_number oid, bucket text, seal text)
    RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET client_min_messages = warning
SET default_tablespace = '' SET default_table_access_method = heap AS $tutti$
DECLARE
    acting name := CASE current_setting('role') WHEN 'none' THEN session_user ELSE current_setting('role') END;
    entries text := format('tutti.%I', 'unique_' || new_number);
    found record;
    problem text;
    called name[];
    key_name name;
BEGIN
    IF tutti.is_sealed('make unique ' || (SELECT string_agg(octet_length(part) || ':' || part, '' ORDER BY position)
            FROM unnest(ARRAY[index_schema, index_name, new_number::text, bucket]) WITH ORDINALITY AS u (part, position)),
            seal) IS NOT TRUE THEN
        RAISE insufficient_privilege USING MESSAGE = 'only a gateway can make an index unique over all nodes';
    END IF;
    SELECT i.*, c.relname, c.relkind, c.relpersistence, c.relispartition, c.relowner, a.amname,
        p.kind, p.key_attnum INTO found
        FROM pg_class x JOIN pg_namespace n ON n.oid = x.relnamespace JOIN pg_index i ON i.indexrelid = x.oid
        JOIN pg_class c ON c.oid = i.indrelid JOIN pg_am a ON a.oid = x.relam
        LEFT JOIN tutti.placement p ON p.relation = c.oid
        WHERE n.nspname = index_schema AND x.relname = index_name;
    IF found IS NULL THEN
        RAISE undefined_object USING MESSAGE = format('index "%s" does not exist', index_name);
    END IF;
    IF NOT pg_has_role(acting, found.relowner, 'USAGE') THEN
        RAISE insufficient_privilege USING MESSAGE = format('must be owner of table %s', found.relname);
    END IF;
    problem := CASE
        WHEN found.relkind <> 'r' OR found.relispartition THEN 'Its table is partitioned, or is a partition.'
        WHEN found.relpersistence <> 'p' THEN 'Its table is UNLOGGED: a crash would empty it, and not the other nodes'' entries.'
        WHEN found.kind IS DISTINCT FROM 'hash' THEN 'Its table is not distributed BY HASH.'
        WHEN found.key_attnum IS NULL THEN 'Its table is distributed by several columns together.'
        WHEN NOT found.indisunique THEN 'It is not UNIQUE.'
        WHEN found.indexprs IS NOT NULL THEN 'It has an expression.'
        WHEN found.indpred IS NOT NULL THEN 'It has a condition (WHERE).'
        WHEN found.indnullsnotdistinct THEN 'It says NULLS NOT DISTINCT.'
        WHEN found.indnatts <> found.indnkeyatts THEN 'It has INCLUDE.'
        WHEN found.amname <> 'btree' THEN 'It is not of the method btree.'
        WHEN found.key_attnum = ANY (found.indkey::smallint[]) THEN
            'It contains the distribution key, so each node can check it: leave out WITH (tutti.global_unique).'
    END;
    problem := coalesce(problem, tutti.entry_problem(found.indrelid, found.indkey::smallint[]));
    IF problem IS NULL THEN
        SELECT format('Column "%s" is compared by a collation or an operator class of its own.', a.attname) INTO problem
        FROM unnest(found.indkey::smallint[], found.indclass::oid[], found.indcollation::oid[]) AS k (attnum, class, collated)
        JOIN pg_attribute a ON a.attrelid = found.indrelid AND a.attnum = k.attnum
        JOIN pg_opclass o ON o.oid = k.class LEFT JOIN pg_collation l ON l.oid = k.collated
        WHERE NOT o.opcdefault OR NOT coalesce(l.collisdeterministic, true) LIMIT 1;
    END IF;
    IF problem IS NOT NULL THEN
        RAISE feature_not_supported USING
            MESSAGE = format('index "%s" cannot be unique over all nodes', index_name), DETAIL = problem,
            HINT = 'WITH (tutti.global_unique) is for plain columns of built-in types (numbers, texts, times, uuid, bytea, bool) of a table that is distributed BY HASH and not partitioned.';
    END IF;
    SELECT array_agg(a.attname ORDER BY k.position) INTO called
        FROM unnest(found.indkey::smallint[]) WITH ORDINALITY AS k (attnum, position)
        JOIN pg_attribute a ON a.attrelid = found.indrelid AND a.attnum = k.attnum;
    SELECT a.attname INTO key_name FROM pg_attribute a
        WHERE a.attrelid = found.indrelid AND a.attnum = found.key_attnum;

    EXECUTE format('CREATE TABLE %s (%s, PRIMARY KEY (%s))', entries,
        tutti.entry_definitions(found.indrelid, found.indkey::smallint[] || found.key_attnum),
        (SELECT string_agg(quote_ident(c), ', ' ORDER BY p) FROM unnest(called) WITH ORDINALITY AS u (c, p)));
    EXECUTE format('ALTER TABLE %s ENABLE ROW LEVEL SECURITY', entries);
    INSERT INTO tutti.unique_index (number, relation, index, attnums, columns, key)
        VALUES (new_number, found.indrelid, found.indexrelid, found.indkey::smallint[], called, key_name);
    PERFORM tutti.make_notes(k, bucket) FROM tutti.kept k WHERE k.kind = 'unique' AND k.number = new_number;
END $tutti$;
COMMENT ON FUNCTION tutti.make_unique IS 'Makes what keeps a unique index unique over all nodes; it has no entries yet. The role must be the owner of the table, and the caller a gateway.';

-- `removed`, `added`: texts of arrays of entries. `builds`: the index is being made.
CREATE OR REPLACE FUNCTION tutti.keep_unique(kept oid, removed text, added text, builds boolean, seal text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET DateStyle = 'ISO, YMD' SET TimeZone = 'UTC'
SET bytea_output = hex SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $tutti$
DECLARE
    acting name := CASE current_setting('role') WHEN 'none' THEN session_user ELSE current_setting('role') END;
    entries text := format('tutti.%I', 'unique_' || kept);
    index record;
    values_of_added text;
    gone bigint;
    wanted bigint;
    violation text;
BEGIN
    IF tutti.is_sealed(format('keep unique %s %s %s %s', kept, builds, encode(sha256(convert_to(removed, 'UTF8')), 'hex'),
            encode(sha256(convert_to(added, 'UTF8')), 'hex')), seal) IS NOT TRUE THEN
        RAISE insufficient_privilege USING MESSAGE = 'only a gateway can keep entries';
    END IF;
    -- One that was rebuilt CONCURRENTLY is another, which forget_entries learns with the next change of the schema.
    SELECT u.columns, u.columns || u.key AS entry_columns, coalesce(c.relname, (SELECT x.relname FROM pg_index i JOIN pg_class x ON x.oid = i.indexrelid
            WHERE i.indrelid = u.relation AND i.indisunique AND i.indkey::smallint[] = u.attnums LIMIT 1)) AS called,
        t.relname AS of_table, n.nspname AS in_schema, NOT t.relrowsecurity AND (has_table_privilege(acting, t.oid, 'SELECT')
            OR (SELECT bool_and(has_column_privilege(acting, t.oid, a, 'SELECT')) FROM unnest(u.attnums) AS a)) AS may_read
        INTO index
        FROM tutti.unique_index u LEFT JOIN pg_class c ON c.oid = u.index JOIN pg_class t ON t.oid = u.relation
        JOIN pg_namespace n ON n.oid = t.relnamespace WHERE u.number = kept;
    values_of_added := (SELECT string_agg(format('a.%I', c), ', ' ORDER BY p) FROM unnest(index.columns) WITH ORDINALITY AS u (c, p));
    IF removed <> '{}' THEN
        -- A value that has gone to another row is there all the time, for what refers to it.
        EXECUTE format('WITH r AS MATERIALIZED (SELECT * FROM unnest($1::%1$s[])),
                a AS MATERIALIZED (SELECT DISTINCT ON (%2$s) a.* FROM unnest($2::%1$s[]) AS a),
                m AS (UPDATE %1$s e SET (%3$s) = ROW(%4$s) FROM r JOIN a ON %5$s WHERE %6$s RETURNING 1),
                d AS (DELETE FROM %1$s e USING r WHERE %6$s AND NOT EXISTS (SELECT FROM a WHERE %5$s) RETURNING 1)
                SELECT (SELECT count(*) FROM m) + (SELECT count(*) FROM d), (SELECT count(*) FROM r)', entries,
            values_of_added,
            (SELECT string_agg(quote_ident(c), ', ' ORDER BY p) FROM unnest(index.entry_columns) WITH ORDINALITY AS u (c, p)),
            (SELECT string_agg(format('a.%I', c), ', ' ORDER BY p) FROM unnest(index.entry_columns) WITH ORDINALITY AS u (c, p)),
            (SELECT string_agg(format('a.%1$I = r.%1$I', c), ' AND ') FROM unnest(index.columns) AS u (c)),
            (SELECT string_agg(format('e.%1$I = r.%1$I', c), ' AND ') FROM unnest(index.columns) AS u (c)))
            INTO gone, wanted USING removed, added;
        IF gone <> wanted THEN
            RAISE internal_error USING
                MESSAGE = format('index "%s" has no entry of a row that was changed', index.called),
                DETAIL = format('Of %s entries %s were found.', wanted, gone),
                HINT = 'Nothing was done. Run "tutti check"; drop the index and make it anew.';
        END IF;
    END IF;
    IF added <> '{}' THEN
        -- Those that have not taken a place that was left, of each value one.
        EXECUTE format('INSERT INTO %1$s SELECT (i.entry).* FROM (
                SELECT (a.*)::%1$s AS entry, row_number() OVER (PARTITION BY %2$s) AS nth, EXISTS (SELECT FROM unnest($2::%1$s[]) AS r WHERE %3$s) AS is_left
                FROM unnest($1::%1$s[]) AS a) AS i WHERE NOT i.is_left OR i.nth > 1 ORDER BY i.entry', entries, values_of_added,
            (SELECT string_agg(format('a.%1$I = r.%1$I', c), ' AND ') FROM unnest(index.columns) AS u (c)))
            USING added, removed;
    END IF;
EXCEPTION WHEN unique_violation THEN
    GET STACKED DIAGNOSTICS violation = PG_EXCEPTION_DETAIL;
    -- As PostgreSQL: whoever may not read the value is not told it.
    IF NOT index.may_read THEN
        violation := '';
    END IF;
    IF builds THEN
        RAISE unique_violation USING MESSAGE = format('could not create unique index "%s"', index.called),
            DETAIL = regexp_replace(violation, ' already exists\.$', ' is duplicated.'),
            SCHEMA = index.in_schema, TABLE = index.of_table, CONSTRAINT = index.called;
    END IF;
    RAISE unique_violation USING
        MESSAGE = format('duplicate key value violates unique constraint "%s"', index.called), DETAIL = violation,
        SCHEMA = index.in_schema, TABLE = index.of_table, CONSTRAINT = index.called;
END $tutti$;
COMMENT ON FUNCTION tutti.keep_unique IS 'Removes and adds entries of a unique index that holds over all nodes, those that belong on this node. The caller must be a gateway.';

-- Why an index cannot be kept unique over all nodes any more, if so: what has become of its table.
CREATE OR REPLACE FUNCTION tutti.unique_problem(known tutti.unique_index) RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET row_security = on AS $tutti$
BEGIN
    RETURN CASE
        WHEN EXISTS (SELECT FROM unnest(known.attnums, known.columns) AS u (attnum, called)
                JOIN pg_attribute a ON a.attrelid = known.relation AND a.attnum = u.attnum WHERE a.attname <> u.called)
            OR NOT EXISTS (SELECT FROM tutti.placement p JOIN pg_attribute a ON a.attrelid = p.relation AND a.attnum = p.key_attnum
                WHERE p.relation = known.relation AND a.attname = known.key)
            THEN 'What keeps it knows its columns, and the distribution key, by the names that they had.'
        WHEN NOT EXISTS (SELECT FROM tutti.placement p WHERE p.relation = known.relation AND p.kind = 'hash')
            OR EXISTS (SELECT FROM tutti.placement p WHERE p.relation = known.relation AND p.computed IS NOT NULL)
            OR EXISTS (SELECT FROM pg_class c WHERE c.oid = known.relation
                AND (c.relispartition OR c.relpersistence <> 'p'))
            THEN 'Its table would not be a logged one that is distributed BY HASH of a column that rows bring with them, by itself, any more.'
        WHEN NOT (SELECT tutti.has_notes(k) FROM tutti.kept k WHERE k.kind = 'unique' AND k.number = known.number)
            THEN 'The triggers that note its changes would be off, or be called otherwise.'
        WHEN EXISTS (SELECT FROM pg_constraint k WHERE k.conindid = known.index AND k.contype <> 'f')
            THEN 'A constraint would have it, which INSERT … ON CONFLICT ON CONSTRAINT may name.'
    END;
END $tutti$;
COMMENT ON FUNCTION tutti.unique_problem IS 'Why an index cannot be kept unique over all nodes, if so.';
