-- Unique indexes of spread tables that do not contain the distribution key. Part of the schema tutti. See
-- docs/decisions/2026-11-27-global-unique.md.
--
-- A node sees whether values are unique among its own rows. So each such index has a table of its own on every node, in
-- which each value has an entry on the node that its hash says, and whose primary key decides. What changes is noted by
-- constraint triggers that are deferred: the server keeps their events in memory, and forgets those of what is undone.
-- A gateway has them fire after each statement, by drain_unique, which sends a notice for each change, and brings these to
-- the entries, by keep_unique. If one fires otherwise, at COMMIT at the latest, nobody would keep the entries: it fails.

CREATE TABLE IF NOT EXISTS tutti.unique_index (
    number oid PRIMARY KEY,
    relation oid NOT NULL,
    index oid NOT NULL UNIQUE,
    attnums smallint[] NOT NULL,
    columns name[] NOT NULL,
    key name NOT NULL
);
COMMENT ON TABLE tutti.unique_index IS 'Unique indexes that hold over all nodes without containing the distribution key, by the number that the index got on node 1: its entries are in unique_NUMBER. Tables and indexes are named by their oid on this server, columns by what they were called then.';

-- SET CONSTRAINTS means all constraints of a name that are in a schema.
CREATE OR REPLACE FUNCTION tutti.refuse_namesakes(kept oid) RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $tutti$
DECLARE
    other text;
BEGIN
    SELECT format('constraint "%s"', k.conname) INTO other
        FROM tutti.unique_index u JOIN pg_class c ON c.oid = u.relation JOIN pg_constraint k ON k.connamespace = c.relnamespace
        WHERE u.number = kept
        AND k.conname = ANY (ARRAY(SELECT concat('tutti_unique_', kept, '_', s)::name FROM unnest('{i,u,d}'::text[]) AS s))
        AND NOT EXISTS (SELECT FROM pg_trigger t JOIN pg_proc p ON p.oid = t.tgfoid
            WHERE t.tgconstraint = k.oid AND t.tgrelid = u.relation AND p.pronamespace = 'tutti'::regnamespace
            AND p.proname = concat('note_unique_', kept)) LIMIT 1;
    IF other IS NOT NULL THEN
        RAISE reserved_name USING MESSAGE = format('%s has a name that Tutti needs', other),
            HINT = 'Call it otherwise.';
    END IF;
END $tutti$;
COMMENT ON FUNCTION tutti.refuse_namesakes IS 'Fails if a constraint that Tutti has not made is called like one that notes changes of this index, in its schema. For the functions of this schema.';

-- Code of others may be run while changes are told, and could tell some as well: so each is sealed.
CREATE OR REPLACE FUNCTION tutti.tell_changed(kept oid, sign text, in_bucket bigint, entry text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $tutti$
DECLARE
    told text := concat(kept, ' ', sign, ' ', in_bucket);
BEGIN
    RAISE INFO USING MESSAGE = concat(told, ' ', tutti.seal_of(concat(pg_backend_pid(), ' ',
        encode(timestamptz_send(now()), 'hex'), ' told ', told, ' ', entry))), DETAIL = entry;
END $tutti$;
COMMENT ON FUNCTION tutti.tell_changed IS 'Tells a gateway of an entry that is gone or there. For the functions of this schema.';

-- `bucket` computes the bucket of the value that stands for {} in it.
CREATE OR REPLACE FUNCTION tutti.make_unique(index_schema text, index_name text, new_number oid, bucket text, seal text)
    RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET client_min_messages = warning
SET default_tablespace = '' SET default_table_access_method = heap AS $tutti$
DECLARE
    acting name := CASE current_setting('role') WHEN 'none' THEN session_user ELSE current_setting('role') END;
    entries text := format('tutti.%I', 'unique_' || new_number);
    noted text := format('tutti.%I', 'note_unique_' || new_number);
    found record;
    problem text;
    hint text := 'Leave it out of the index, or make the table REPLICATED.';
    called name[];
    key_name name;
    old_row text;
    new_row text;
BEGIN
    IF tutti.is_sealed('make unique ' || (SELECT string_agg(octet_length(part) || ':' || part, '' ORDER BY position)
            FROM unnest(ARRAY[index_schema, index_name, new_number::text, bucket]) WITH ORDINALITY AS u (part, position)),
            seal) IS NOT TRUE THEN
        RAISE insufficient_privilege USING MESSAGE = 'only a gateway can make an index unique over all nodes';
    END IF;
    SELECT i.*, c.relname, c.relkind, c.relpersistence, c.relispartition, c.relowner, c.oid::regclass::text AS of_table, a.amname,
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
    IF problem IS NULL THEN
        SELECT format('The type of column "%s" is %s.', a.attname, format_type(a.atttypid, NULL)) INTO problem
        FROM unnest(found.indkey::smallint[]) AS k (attnum)
        JOIN pg_attribute a ON a.attrelid = found.indrelid AND a.attnum = k.attnum
        WHERE a.atttypid <> ALL ('{bool,int2,int4,int8,text,varchar,bpchar,uuid,bytea,date,time,timestamp,timestamptz,numeric}'::regtype[]::oid[])
        LIMIT 1;
    END IF;
    IF problem IS NULL THEN
        SELECT format('Column "%s" is generated.', a.attname) INTO problem
        FROM unnest(found.indkey::smallint[]) AS k (attnum)
        JOIN pg_attribute a ON a.attrelid = found.indrelid AND a.attnum = k.attnum
        WHERE a.attgenerated <> '' LIMIT 1;
    END IF;
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

    -- Values are equal there as they are to the index: no collation that it may have tells more of them apart, or fewer.
    EXECUTE (SELECT format('CREATE TABLE %s (%s, PRIMARY KEY (%s))', entries,
            string_agg(format('%I %s%s', a.attname, format_type(a.atttypid, a.atttypmod),
                CASE WHEN a.attcollation <> 0 THEN ' COLLATE "C"' ELSE '' END), ', ' ORDER BY k.position),
            (SELECT string_agg(quote_ident(c), ', ' ORDER BY p) FROM unnest(called) WITH ORDINALITY AS u (c, p)))
        FROM unnest(found.indkey::smallint[] || found.key_attnum) WITH ORDINALITY AS k (attnum, position)
        JOIN pg_attribute a ON a.attrelid = found.indrelid AND a.attnum = k.attnum);
    EXECUTE format('ALTER TABLE %s ENABLE ROW LEVEL SECURITY', entries);

    SELECT string_agg(format('OLD.%I', c), ', ' ORDER BY p), string_agg(format('NEW.%I', c), ', ' ORDER BY p)
        INTO old_row, new_row FROM unnest(called || key_name) WITH ORDINALITY AS u (c, p);
    -- As a literal: names of columns are whatever their table's owner wants.
    EXECUTE format('CREATE FUNCTION %s() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
        SET search_path = pg_catalog, pg_temp AS %L', noted, format($body$
BEGIN
    IF TG_OP = 'TRUNCATE' THEN
        TRUNCATE %1$s;
        RETURN NULL;
    END IF;
    PERFORM tutti.expect_drain(%2$s);
    IF TG_OP <> 'INSERT' AND NOT (%3$s) THEN
        PERFORM tutti.tell_changed(%2$s, '-', %4$s, ROW(%5$s)::%1$s::text);
    END IF;
    IF TG_OP <> 'DELETE' AND NOT (%6$s) THEN
        PERFORM tutti.tell_changed(%2$s, '+', %7$s, ROW(%8$s)::%1$s::text);
    END IF;
    RETURN NULL;
END $body$, entries, new_number,
        (SELECT string_agg(format('OLD.%I IS NULL', c), ' OR ') FROM unnest(called) AS u (c)),
        replace(bucket, '{}', format('OLD.%I', called[1])), old_row,
        (SELECT string_agg(format('NEW.%I IS NULL', c), ' OR ') FROM unnest(called) AS u (c)),
        replace(bucket, '{}', format('NEW.%I', called[1])), new_row));
    EXECUTE format('REVOKE ALL ON FUNCTION %s() FROM PUBLIC', noted);

    EXECUTE format('CREATE CONSTRAINT TRIGGER %I AFTER INSERT ON %s DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
            WHEN (NOT (%s)) EXECUTE FUNCTION %s()', 'tutti_unique_' || new_number || '_i', found.of_table,
        (SELECT string_agg(format('NEW.%I IS NULL', c), ' OR ') FROM unnest(called) AS u (c)), noted);
    EXECUTE format('CREATE CONSTRAINT TRIGGER %I AFTER UPDATE ON %s DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
            WHEN ((%s) IS DISTINCT FROM (%s) OR (%s) IS DISTINCT FROM (%s)) EXECUTE FUNCTION %s()',
        'tutti_unique_' || new_number || '_u', found.of_table,
        (SELECT string_agg(format('OLD.%I', c), ', ' ORDER BY p) FROM unnest(called || key_name) WITH ORDINALITY AS u (c, p)),
        (SELECT string_agg(format('NEW.%I', c), ', ' ORDER BY p) FROM unnest(called || key_name) WITH ORDINALITY AS u (c, p)),
        -- As texts, too: 1.0 and 1.00 are equal, and written otherwise. (Not as texts alone: one may be two times of day.)
        (SELECT string_agg(format('OLD.%I::text', c), ', ' ORDER BY p) FROM unnest(called || key_name) WITH ORDINALITY AS u (c, p)),
        (SELECT string_agg(format('NEW.%I::text', c), ', ' ORDER BY p) FROM unnest(called || key_name) WITH ORDINALITY AS u (c, p)),
        noted);
    EXECUTE format('CREATE CONSTRAINT TRIGGER %I AFTER DELETE ON %s DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
            WHEN (NOT (%s)) EXECUTE FUNCTION %s()', 'tutti_unique_' || new_number || '_d', found.of_table,
        (SELECT string_agg(format('OLD.%I IS NULL', c), ' OR ') FROM unnest(called) AS u (c)), noted);
    EXECUTE format('CREATE TRIGGER %I AFTER TRUNCATE ON %s EXECUTE FUNCTION %s()',
        'tutti_unique_' || new_number || '_t', found.of_table, noted);
    -- Also where other triggers are off.
    EXECUTE (SELECT string_agg(format('ALTER TABLE %s ENABLE ALWAYS TRIGGER %I', found.of_table,
        concat('tutti_unique_', new_number, '_', suffix)), '; ') FROM unnest('{i,u,d,t}'::text[]) AS s (suffix));
    INSERT INTO tutti.unique_index (number, relation, index, attnums, columns, key)
        VALUES (new_number, found.indrelid, found.indexrelid, found.indkey::smallint[], called, key_name);
    PERFORM tutti.refuse_namesakes(new_number);
END $tutti$;
COMMENT ON FUNCTION tutti.make_unique IS 'Makes what keeps a unique index unique over all nodes; it has no entries yet. The role must be the owner of the table, and the caller a gateway.';

CREATE OR REPLACE FUNCTION tutti.draining() RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $tutti$
BEGIN
    RETURN tutti.seal_of(concat('draining ', pg_backend_pid(), ' ', encode(timestamptz_send(now()), 'hex')));
END $tutti$;
COMMENT ON FUNCTION tutti.draining IS 'What the setting tutti.draining is while a gateway reads what has changed. For the functions of this schema.';

CREATE OR REPLACE FUNCTION tutti.expect_drain(changed oid) RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $tutti$
BEGIN
    IF current_setting('tutti.draining', true) IS DISTINCT FROM tutti.draining() THEN
        RAISE feature_not_supported USING
            MESSAGE = (SELECT format('the entries of index "%s", which is unique over all nodes, would not be kept here', c.relname)
                FROM tutti.unique_index u JOIN pg_class c ON c.oid = u.index WHERE u.number = changed),
            DETAIL = 'Its table was changed by code that the gateway does not know of, or past the gateway; or behind SET CONSTRAINTS ALL IMMEDIATE.',
            HINT = 'Send the statement that changes the table through the gateway, outside of functions; and name the constraints in SET CONSTRAINTS.';
    END IF;
END $tutti$;
COMMENT ON FUNCTION tutti.expect_drain IS 'Fails unless a gateway is reading what has changed. For the functions of this schema.';

-- Whatever SET CONSTRAINTS fires runs as the client, and not as the owner of this schema: names of constraints are not
-- unique, though there should be no others of these names.
CREATE OR REPLACE FUNCTION tutti.begin_drain(seal text) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $tutti$
DECLARE
    written oid[];
    names text;
BEGIN
    IF tutti.is_sealed('drain unique', seal) IS NOT TRUE THEN
        RAISE insufficient_privilege USING MESSAGE = 'only a gateway can keep the entries of indexes';
    END IF;
    -- Of tables that the transaction has written: it has locked them, so they stay, and others' may go.
    SELECT array_agg(u.number) INTO written FROM tutti.unique_index u
        WHERE EXISTS (SELECT FROM pg_locks l WHERE l.pid = pg_backend_pid() AND l.locktype = 'relation' AND l.granted
            AND l.relation = u.relation AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
            AND l.mode NOT IN ('AccessShareLock', 'RowShareLock'));
    PERFORM tutti.refuse_namesakes(u.number) FROM unnest(written) AS u (number);
    SELECT string_agg(format('%I.%I', n.nspname, concat('tutti_unique_', u.number, '_', s.suffix)), ', ') INTO names
        FROM tutti.unique_index u JOIN pg_class c ON c.oid = u.relation JOIN pg_namespace n ON n.oid = c.relnamespace
        CROSS JOIN unnest('{i,u,d}'::text[]) AS s (suffix) WHERE u.number = ANY (written);
    PERFORM set_config('tutti.draining', tutti.draining(), true);
    RETURN names;
END $tutti$;
COMMENT ON FUNCTION tutti.begin_drain IS 'The constraints that note changes of unique indexes that hold over all nodes; from now on these may fire. The caller must be a gateway.';

-- What it tells is read by another node, under the same settings.
CREATE OR REPLACE FUNCTION tutti.drain_unique(seal text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET DateStyle = 'ISO, YMD' SET TimeZone = 'UTC'
SET bytea_output = hex SET client_min_messages = error AS $tutti$
DECLARE
    names text := tutti.begin_drain(seal);
BEGIN
    IF names IS NOT NULL THEN
        EXECUTE format('SET CONSTRAINTS %s IMMEDIATE', names);
        EXECUTE format('SET CONSTRAINTS %s DEFERRED', names);
    END IF;
    PERFORM set_config('tutti.draining', '', true);
END $tutti$;
COMMENT ON FUNCTION tutti.drain_unique IS 'Tells by a notice each what this transaction has changed here, since it was asked last, of the values of unique indexes that hold over all nodes. The caller must be a gateway.';

-- `removed`, `added`: texts of arrays of entries. `builds`: the index is being made.
CREATE OR REPLACE FUNCTION tutti.keep_unique(kept oid, removed text, added text, builds boolean, seal text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET DateStyle = 'ISO, YMD' SET TimeZone = 'UTC'
SET bytea_output = hex SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $tutti$
DECLARE
    acting name := CASE current_setting('role') WHEN 'none' THEN session_user ELSE current_setting('role') END;
    entries text := format('tutti.%I', 'unique_' || kept);
    index record;
    gone bigint;
    wanted bigint;
    violation text;
BEGIN
    IF tutti.is_sealed(format('keep unique %s %s %s %s', kept, builds, encode(sha256(convert_to(removed, 'UTF8')), 'hex'),
            encode(sha256(convert_to(added, 'UTF8')), 'hex')), seal) IS NOT TRUE THEN
        RAISE insufficient_privilege USING MESSAGE = 'only a gateway can keep the entries of indexes';
    END IF;
    -- One that was rebuilt CONCURRENTLY is another, which forget_unique learns with the next change of the schema.
    SELECT u.columns, coalesce(c.relname, (SELECT x.relname FROM pg_index i JOIN pg_class x ON x.oid = i.indexrelid
            WHERE i.indrelid = u.relation AND i.indisunique AND i.indkey::smallint[] = u.attnums LIMIT 1)) AS called,
        t.relname AS of_table, n.nspname AS in_schema, NOT t.relrowsecurity AND (has_table_privilege(acting, t.oid, 'SELECT')
            OR (SELECT bool_and(has_column_privilege(acting, t.oid, a, 'SELECT')) FROM unnest(u.attnums) AS a)) AS may_read
        INTO index
        FROM tutti.unique_index u LEFT JOIN pg_class c ON c.oid = u.index JOIN pg_class t ON t.oid = u.relation
        JOIN pg_namespace n ON n.oid = t.relnamespace WHERE u.number = kept;
    IF removed <> '{}' THEN
        EXECUTE format('WITH r AS MATERIALIZED (SELECT * FROM unnest($1::%1$s[])), d AS (DELETE FROM %1$s e USING r WHERE %2$s RETURNING 1)
                SELECT (SELECT count(*) FROM d), (SELECT count(*) FROM r)', entries,
            (SELECT string_agg(format('e.%1$I = r.%1$I', c), ' AND ') FROM unnest(index.columns) AS u (c)))
            INTO gone, wanted USING removed;
        IF gone <> wanted THEN
            RAISE internal_error USING
                MESSAGE = format('index "%s" has no entry of a row that was changed', index.called),
                DETAIL = format('Of %s entries %s were found.', wanted, gone),
                HINT = 'Nothing was done. Run "tutti check"; drop the index and make it anew.';
        END IF;
    END IF;
    IF added <> '{}' THEN
        EXECUTE format('INSERT INTO %1$s SELECT r.* FROM unnest($1::%1$s[]) AS r ORDER BY %2$s', entries,
            (SELECT string_agg(format('r.%I', c), ', ' ORDER BY p) FROM unnest(index.columns) WITH ORDINALITY AS u (c, p)))
            USING added;
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

-- The entries that rows of this node have, for an index that is being made: their bucket, and the entry. It runs as the
-- client, the table's owner: to plan the query runs code of the owner's. No row may be hidden.
CREATE OR REPLACE FUNCTION tutti.unique_entries(wanted oid, bucket text) RETURNS TABLE (in_bucket bigint, entry text)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET row_security = on SET DateStyle = 'ISO, YMD' SET TimeZone = 'UTC'
SET bytea_output = hex AS $tutti$
DECLARE
    index record;
BEGIN
    SELECT u.*, u.relation::regclass::text AS of_table INTO index FROM tutti.unique_index u WHERE u.number = wanted;
    SET LOCAL row_security = off;
    RETURN QUERY EXECUTE format('SELECT %s, ROW(%s)::tutti.%I::text FROM ONLY %s AS t WHERE %s',
        replace(bucket, '{}', format('t.%I', index.columns[1])),
        (SELECT string_agg(format('t.%I', c), ', ' ORDER BY p) FROM unnest(index.columns || index.key) WITH ORDINALITY AS u (c, p)),
        'unique_' || wanted, index.of_table,
        (SELECT string_agg(format('t.%I IS NOT NULL', c), ' AND ') FROM unnest(index.columns) AS u (c)));
END $tutti$;
COMMENT ON FUNCTION tutti.unique_entries IS 'The entries of rows of this node in a unique index that holds over all nodes.';

-- An index that was rebuilt CONCURRENTLY is another of the same columns.
CREATE OR REPLACE FUNCTION tutti.forget_unique() RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET client_min_messages = warning AS $tutti$
DECLARE
    gone record;
    other oid;
BEGIN
    FOR gone IN SELECT u.* FROM tutti.unique_index u
        WHERE NOT EXISTS (SELECT FROM pg_class c WHERE c.oid = u.index) ORDER BY u.number
    LOOP
        SELECT i.indexrelid INTO other FROM pg_index i
            WHERE i.indrelid = gone.relation AND i.indisunique AND i.indisvalid AND i.indexprs IS NULL AND i.indpred IS NULL
            AND i.indkey::smallint[] = gone.attnums
            AND NOT EXISTS (SELECT FROM tutti.unique_index u WHERE u.index = i.indexrelid)
            ORDER BY i.indexrelid LIMIT 1;
        IF other IS NOT NULL THEN
            UPDATE tutti.unique_index u SET index = other WHERE u.number = gone.number;
            CONTINUE;
        END IF;
        EXECUTE format('DROP FUNCTION IF EXISTS tutti.%I() CASCADE', 'note_unique_' || gone.number);
        EXECUTE format('DROP TABLE IF EXISTS tutti.%I', 'unique_' || gone.number);
        DELETE FROM tutti.unique_index u WHERE u.number = gone.number;
    END LOOP;
END $tutti$;
COMMENT ON FUNCTION tutti.forget_unique IS 'Drops what has kept indexes unique over all nodes that are gone.';

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
        WHEN (SELECT count(*) FROM pg_trigger t JOIN pg_proc p ON p.oid = t.tgfoid AND p.pronamespace = 'tutti'::regnamespace
                LEFT JOIN pg_constraint k ON k.oid = t.tgconstraint
                WHERE t.tgrelid = known.relation AND t.tgenabled = 'A' AND p.proname = concat('note_unique_', known.number)
                AND coalesce(k.conname, t.tgname) = t.tgname
                AND t.tgname = ANY (ARRAY(SELECT concat('tutti_unique_', known.number, '_', s) FROM unnest('{i,u,d,t}'::text[]) AS s))) <> 4
            THEN 'The triggers that note its changes would be off, or be called otherwise.'
        WHEN EXISTS (SELECT FROM pg_constraint k WHERE k.conindid = known.index AND k.contype <> 'f')
            THEN 'A constraint would have it, which INSERT … ON CONFLICT ON CONSTRAINT may name.'
    END;
END $tutti$;
COMMENT ON FUNCTION tutti.unique_problem IS 'Why an index cannot be kept unique over all nodes, if so.';
