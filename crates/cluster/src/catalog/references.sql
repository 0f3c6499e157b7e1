-- Foreign keys between spread tables that do not pair the distribution keys, by entries (entries.sql). Part of the schema
-- tutti. See docs/decisions/2026-11-30-foreign-keys-over-nodes.md.
--
-- The constraint that the client has named is there on all nodes, so that catalogs show it, DROP and TRUNCATE heed it; but
-- its triggers are off, for a row and the one that it refers to are on different nodes. The entry of a row is on the node
-- of the row that it refers to, and the entries' own foreign key, which is always deferred, is what is checked: by
-- keep_reference and check_references after each statement, or by the server at COMMIT at the latest.

-- Where entries are: which of its columns says so, by its hash; by the entries of which unique index over all nodes, if
-- not by the rows that it refers to; and the bucket map. Nothing: neither is possible.
CREATE OR REPLACE FUNCTION tutti.place_of_reference(wanted oid) RETURNS TABLE (placed_by integer, through oid, map integer)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp SET row_security = on AS $tutti$
    SELECT f.placed_by, f.through, f.map FROM pg_constraint k JOIN tutti.placement p ON p.relation = k.confrelid AND p.kind = 'hash' CROSS JOIN LATERAL (
        SELECT 1, array_position(k.confkey, p.key_attnum), NULL::oid, p.map
        WHERE p.key_attnum = ANY (k.confkey) AND NOT EXISTS (SELECT FROM tutti.map m WHERE m.id = p.map AND m.splits IS NOT NULL)
        UNION ALL SELECT 2, array_position(k.confkey, u.attnums[array_lower(u.attnums, 1)]), u.number, p.map
        FROM tutti.unique_index u WHERE u.relation = k.confrelid AND u.index = k.conindid) AS f (rank, placed_by, through, map)
    WHERE k.oid = wanted
    ORDER BY f.rank LIMIT 1
$tutti$;
COMMENT ON FUNCTION tutti.place_of_reference IS 'Where the entries of a foreign key would be. For the functions of this schema.';

-- Foreign keys that the transaction has made, between tables that are distributed by hash, which no node can check. `key_type`,
-- `key_map`: of its own table, if that is distributed by one column.
DROP FUNCTION IF EXISTS tutti.wanted_references();
CREATE OR REPLACE FUNCTION tutti.wanted_references() RETURNS
    TABLE (number oid, in_schema name, of_table name, called name, value_column name, value_type oid, referred_type oid, map integer,
        key_type oid, key_map integer)
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET row_security = on AS $tutti$
BEGIN
    RETURN QUERY SELECT k.oid, n.nspname, c.relname, k.conname, a.attname, a.atttypid, r.atttypid, w.map, key.atttypid,
        CASE WHEN key.attnum IS NOT NULL THEN p.map END
    FROM unnest(tutti.changed_relations()) AS o JOIN pg_constraint k ON k.conrelid = o AND k.contype = 'f' AND k.conparentid = 0
    JOIN pg_class c ON c.oid = k.conrelid JOIN pg_namespace n ON n.oid = c.relnamespace AND n.nspname <> 'tutti'
    JOIN tutti.placement p ON p.relation = k.conrelid AND p.kind = 'hash'
    JOIN tutti.placement rp ON rp.relation = k.confrelid AND rp.kind = 'hash'
    LEFT JOIN LATERAL tutti.place_of_reference(k.oid) AS w ON true
    LEFT JOIN pg_attribute a ON a.attrelid = k.conrelid AND a.attnum = k.conkey[w.placed_by]
    LEFT JOIN pg_attribute r ON r.attrelid = k.confrelid AND r.attnum = k.confkey[w.placed_by]
    LEFT JOIN pg_attribute key ON key.attrelid = k.conrelid AND key.attnum = p.key_attnum AND p.computed IS NULL
    WHERE NOT EXISTS (SELECT FROM tutti.reference x WHERE x.foreign_key = k.oid)
    AND (p.map <> rp.map OR EXISTS (SELECT FROM unnest(coalesce(p.key_attnums, ARRAY[p.key_attnum]),
            coalesce(rp.key_attnums, ARRAY[rp.key_attnum])) AS pair (own, theirs)
        WHERE NOT EXISTS (SELECT FROM generate_subscripts(k.conkey, 1) AS i
            WHERE k.conkey[i] = pair.own AND k.confkey[i] = pair.theirs)))
    ORDER BY k.oid;
END $tutti$;
COMMENT ON FUNCTION tutti.wanted_references IS 'Foreign keys of what the transaction has changed that hold by entries alone, and have none yet.';

-- Requires: all entries that there are refer to something. To look would plan a query of the other table as the owner of
-- this schema, which may run code of its owner's.
CREATE OR REPLACE FUNCTION tutti.bind_reference(kept oid) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $tutti$
DECLARE
    called text := concat('reference_', kept);
BEGIN
    EXECUTE (SELECT format('ALTER TABLE tutti.%I ADD CONSTRAINT %I FOREIGN KEY (%s) REFERENCES %s (%s)%s DEFERRABLE INITIALLY DEFERRED NOT VALID',
            called, called,
            (SELECT string_agg(quote_ident(c), ', ' ORDER BY p) FROM unnest(r.columns) WITH ORDINALITY AS u (c, p)),
            coalesce('tutti.unique_' || r.through, r.referred::regclass::text),
            (SELECT string_agg(quote_ident(a.attname), ', ' ORDER BY u.place) FROM unnest(k.confkey) WITH ORDINALITY AS u (attnum, place)
                JOIN pg_attribute a ON a.attrelid = k.confrelid AND a.attnum = u.attnum),
            -- Whatever becomes of the rows, they refer to it no more.
            CASE WHEN k.confdeltype IN ('c', 'n') THEN ' ON DELETE CASCADE' END)
        FROM tutti.reference r JOIN pg_constraint k ON k.oid = r.foreign_key WHERE r.number = kept);
    UPDATE pg_constraint k SET convalidated = true
        WHERE k.conrelid = to_regclass(format('tutti.%I', called)) AND k.conname = called AND NOT k.convalidated;
    -- It goes with the client's, also where a table is dropped with the other or loses a column, and no error about what
    -- depends on what names it. (The entries themselves must not depend on it: dumps have tables before constraints.)
    INSERT INTO pg_depend (classid, objid, objsubid, refclassid, refobjid, refobjsubid, deptype)
        SELECT 'pg_constraint'::regclass, k.oid, 0, 'pg_constraint'::regclass, r.foreign_key, 0, 'a'
        FROM tutti.reference r JOIN pg_constraint k ON k.conrelid = to_regclass(format('tutti.%I', called)) AND k.conname = called
        WHERE r.number = kept;
END $tutti$;
COMMENT ON FUNCTION tutti.bind_reference IS 'Gives entries their foreign key. For the functions of this schema.';

-- The server truncates nothing that something refers to which is not truncated with it; and entries are by a trigger of
-- their table, behind that.
DROP FUNCTION IF EXISTS tutti.free_references(text, text);
CREATE OR REPLACE FUNCTION tutti.free_references(tables text, cascades boolean, seal text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET client_min_messages = warning AS $tutti$
DECLARE
    acting name := CASE current_setting('role') WHEN 'none' THEN session_user ELSE current_setting('role') END;
    it tutti.reference;
BEGIN
    IF tutti.is_sealed(format('free references %s %s', cascades, tables), seal) IS NOT TRUE THEN
        RAISE insufficient_privilege USING MESSAGE = 'only a gateway can free entries';
    END IF;
    -- Whoever may not truncate them is told so by the statement, and must lock nothing before.
    FOR it IN WITH RECURSIVE truncated AS (
            SELECT to_regclass(t)::oid AS relation FROM unnest(tables::text[]) AS t
            UNION SELECT k.conrelid FROM truncated t JOIN pg_constraint k ON k.confrelid = t.relation AND k.contype = 'f'
                AND k.connamespace <> 'tutti'::regnamespace WHERE cascades
        ) SELECT r.* FROM truncated t JOIN tutti.reference r ON r.referred = t.relation
        WHERE has_table_privilege(acting, r.referred, 'TRUNCATE') ORDER BY r.number
    LOOP
        EXECUTE format('ALTER TABLE IF EXISTS tutti.%1$I DROP CONSTRAINT IF EXISTS %1$I', concat('reference_', it.number));
    END LOOP;
END $tutti$;
COMMENT ON FUNCTION tutti.free_references IS 'Lets tables be truncated that entries refer to, by the statement that follows; bind_references must follow that. The caller must be a gateway.';

CREATE OR REPLACE FUNCTION tutti.bind_references(seal text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET client_min_messages = warning AS $tutti$
BEGIN
    IF tutti.is_sealed('bind references', seal) IS NOT TRUE THEN
        RAISE insufficient_privilege USING MESSAGE = 'only a gateway can bind entries';
    END IF;
    PERFORM tutti.bind_reference(k.number) FROM tutti.kept k
        WHERE k.kind = 'reference' AND NOT EXISTS (SELECT FROM pg_constraint c
            WHERE c.conrelid = to_regclass(concat('tutti.reference_', k.number)) AND c.conname = concat('reference_', k.number));
END $tutti$;
COMMENT ON FUNCTION tutti.bind_references IS 'Gives entries their foreign keys again. The caller must be a gateway.';

-- Each entry that goes because what it refers to is deleted is told of, for its row, which is elsewhere: `row_bucket` computes
-- the bucket of that, of the distribution key that stands for {} in it. (The entries of rows that are changed themselves
-- are removed by keep_reference, not by a trigger.) What happens to the rows is a function of their table's owner's, as whom
-- PostgreSQL does it too.
CREATE OR REPLACE FUNCTION tutti.make_action(it tutti.reference, row_bucket text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $tutti$
DECLARE
    entries text := format('tutti.%I', concat('reference_', it.number));
    told text := format('tutti.%I', concat('tell_reference_', it.number));
    acted text := format('tutti.%I', concat('act_reference_', it.number));
    body text;
BEGIN
    SELECT format($body$
BEGIN
    PERFORM tutti.expect_drain('reference', %1$s);
    PERFORM tutti.tell_changed('reference', %1$s, '!', %2$s, ROW(%3$s)::%4$s::text);
    RETURN NULL;
END $body$, it.number, replace(row_bucket, '{}', format('OLD.%I', a.attname)),
            (SELECT string_agg(format('OLD.%I', c), ', ' ORDER BY place) FROM unnest(it.entry_columns) WITH ORDINALITY AS u (c, place)), entries)
        INTO STRICT body FROM tutti.placement p JOIN pg_attribute a ON a.attrelid = p.relation AND a.attnum = p.key_attnum
        WHERE p.relation = it.relation AND a.attnum = ANY (it.entry_attnums);
    EXECUTE format('CREATE FUNCTION %s() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS %L',
        told, body);
    EXECUTE format('REVOKE ALL ON FUNCTION %s() FROM PUBLIC', told);
    EXECUTE format('CREATE CONSTRAINT TRIGGER %I AFTER DELETE ON %s DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
            WHEN (pg_trigger_depth() > 0) EXECUTE FUNCTION %s()', concat('orphans_reference_', it.number), entries, told);

    -- Under the client's search_path, as the triggers of the table are.
    SELECT format($body$
BEGIN
    IF (SELECT pg_catalog.pg_get_userbyid(c.relowner) OPERATOR(pg_catalog.=) CURRENT_USER FROM pg_catalog.pg_class c
            WHERE c.oid OPERATOR(pg_catalog.=) acted) IS NOT TRUE THEN
        RAISE insufficient_privilege USING MESSAGE = 'only the owner of its table acts for a foreign key';
    END IF;
    EXECUTE pg_catalog.concat(%1$L, acted, %2$L) USING entries;
END $body$, CASE k.confdeltype WHEN 'c' THEN 'DELETE FROM ONLY ' ELSE 'UPDATE ONLY ' END,
            concat(' AS t', CASE k.confdeltype WHEN 'c' THEN ' USING' ELSE
                (SELECT concat(' SET ', string_agg(format('%I = NULL', a.attname), ', '), ' FROM')
                    FROM unnest(coalesce(k.confdelsetcols, k.conkey)) AS u (attnum)
                    JOIN pg_attribute a ON a.attrelid = k.conrelid AND a.attnum = u.attnum) END,
                -- Each once: there may be many rows of one value.
                (SELECT format(' (SELECT DISTINCT %s FROM pg_catalog.unnest($1) AS u) AS e WHERE ', string_agg(format('u.%I', c), ', '))
                    FROM unnest(it.columns) AS k (c)),
                (SELECT string_agg(format('t.%1$I OPERATOR(pg_catalog.=) e.%1$I%2$s', a.attname,
                        (SELECT format(' COLLATE %I.%I', n.nspname, l.collname) FROM pg_collation l JOIN pg_namespace n ON n.oid = l.collnamespace
                            WHERE l.oid = a.attcollation)), ' AND ')
                    FROM unnest(k.conkey) AS u (attnum) JOIN pg_attribute a ON a.attrelid = k.conrelid AND a.attnum = u.attnum)))
        INTO STRICT body FROM pg_constraint k WHERE k.oid = it.foreign_key;
    -- It is told which table that is: each node has another number for it, and catalogs may be closed to the owner.
    EXECUTE format('CREATE FUNCTION %s(entries %s[], acted pg_catalog.regclass) RETURNS void LANGUAGE plpgsql SECURITY DEFINER AS %L', acted, entries, body);
    EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', acted);
    INSERT INTO pg_depend (classid, objid, objsubid, refclassid, refobjid, refobjsubid, deptype)
        SELECT 'pg_proc'::regclass, format('%s(%s[],regclass)', acted, entries)::regprocedure, 0, 'pg_constraint'::regclass, it.foreign_key, 0, 'a';
    PERFORM tutti.own_action(it);
END $tutti$;
COMMENT ON FUNCTION tutti.make_action IS 'Makes what a foreign key over all nodes does to rows that refer to what is deleted. For the functions of this schema.';

-- Whoever owned the table may be gone, or no more trusted by who does.
CREATE OR REPLACE FUNCTION tutti.own_action(it tutti.reference) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $tutti$
DECLARE
    wanted text;
BEGIN
    SELECT format('ALTER FUNCTION %s OWNER TO %I', f.oid::regprocedure, pg_get_userbyid(c.relowner)) INTO wanted
        FROM pg_proc f JOIN pg_class c ON c.oid = it.relation
        WHERE f.pronamespace = 'tutti'::regnamespace AND f.proname = concat('act_reference_', it.number) AND f.proowner <> c.relowner;
    IF wanted IS NOT NULL THEN
        EXECUTE wanted;
    END IF;
END $tutti$;
COMMENT ON FUNCTION tutti.own_action IS 'What a foreign key does to rows it does as the owner of their table. For the functions of this schema.';

-- `bucket` computes the bucket of the value that stands for {} in it; `row_bucket`, which is empty where a row is not by one
-- column, that of the table's own distribution key.
DROP FUNCTION IF EXISTS tutti.make_reference(text, text, text, oid, text, text);
CREATE OR REPLACE FUNCTION tutti.make_reference(of_schema text, of_table text, called text, new_number oid, bucket text,
    row_bucket text, seal text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET client_min_messages = warning
SET default_tablespace = '' SET default_table_access_method = heap AS $tutti$
DECLARE
    acting name := CASE current_setting('role') WHEN 'none' THEN session_user ELSE current_setting('role') END;
    entries text := format('tutti.%I', 'reference_' || new_number);
    found pg_constraint;
    own pg_class;
    referred pg_class;
    place record;
    identity smallint[];
    row_key smallint;
    all_attnums smallint[];
    all_columns name[];
    problem text;
    other record;
BEGIN
    IF tutti.is_sealed('make reference ' || (SELECT string_agg(octet_length(part) || ':' || part, '' ORDER BY position)
            FROM unnest(ARRAY[of_schema, of_table, called, new_number::text, bucket, row_bucket]) WITH ORDINALITY AS u (part, position)),
            seal) IS NOT TRUE THEN
        RAISE insufficient_privilege USING MESSAGE = 'only a gateway can make a foreign key hold over all nodes';
    END IF;
    SELECT k.* INTO found FROM pg_constraint k JOIN pg_class c ON c.oid = k.conrelid JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE n.nspname = of_schema AND c.relname = of_table AND k.conname = called AND k.contype = 'f';
    IF found.oid IS NULL THEN
        RAISE undefined_object USING MESSAGE = format('constraint "%s" of table "%s" does not exist', called, of_table);
    END IF;
    SELECT c.* INTO own FROM pg_class c WHERE c.oid = found.conrelid;
    SELECT c.* INTO referred FROM pg_class c WHERE c.oid = found.confrelid;
    IF NOT pg_has_role(acting, own.relowner, 'USAGE') THEN
        RAISE insufficient_privilege USING MESSAGE = format('must be owner of table %s', of_table);
    END IF;
    SELECT p.* INTO place FROM tutti.place_of_reference(found.oid) AS p;
    -- By which row an entry is another than those of the same values: transactions do not wait for each other's.
    SELECT coalesce((SELECT i.indkey::smallint[] FROM pg_index i WHERE i.indrelid = found.conrelid AND i.indisprimary),
            p.key_attnums, ARRAY[p.key_attnum]), p.key_attnum
        INTO identity, row_key FROM tutti.placement p WHERE p.relation = found.conrelid;
    IF tutti.entry_problem(found.conrelid, identity) IS NOT NULL THEN
        identity := '{}';
    END IF;
    problem := CASE
        WHEN own.relkind <> 'r' OR own.relispartition THEN 'Its table is partitioned, or is a partition.'
        WHEN referred.relkind <> 'r' THEN format('Table "%s" is partitioned.', referred.relname)
        WHEN own.relpersistence <> 'p' OR referred.relpersistence <> 'p' THEN
            'One of the tables is UNLOGGED: a crash would empty it, and not the other nodes'' entries.'
        WHEN found.confmatchtype <> 's' THEN 'It says MATCH FULL.'
        WHEN found.confdeltype = 'd' OR found.confupdtype IN ('n', 'd') THEN
            'It says SET DEFAULT or ON UPDATE SET NULL, and the rows that would be changed are on other nodes.'
        WHEN place.placed_by IS NULL THEN format('The columns that it refers to do not contain the distribution key of table "%s" (one column, BY HASH), nor are they those of an index that is unique over all nodes.', referred.relname)
        WHEN found.confdeltype IN ('c', 'n') AND place.through IS NOT NULL THEN
            'It says ON DELETE CASCADE or SET NULL, and refers to columns that do not contain the distribution key.'
        WHEN found.confdeltype IN ('c', 'n') AND (row_bucket = '' OR row_key <> ALL (found.conkey || identity)) THEN
            'It says ON DELETE CASCADE or SET NULL, and by what its table is distributed entries cannot tell where its rows are.'
        WHEN found.confdeltype IN ('c', 'n') AND own.relrowsecurity AND own.relforcerowsecurity THEN
            'It says ON DELETE CASCADE or SET NULL, and row security, which is forced on the owner of its table, could hide rows.'
        WHEN found.confdeltype = 'n' AND row_key = ANY (coalesce(found.confdelsetcols, found.conkey)) THEN
            'It says ON DELETE SET NULL of the distribution key, by which rows would belong on other nodes.'
        WHEN EXISTS (SELECT FROM pg_attribute a JOIN pg_collation l ON l.oid = a.attcollation
            WHERE (a.attrelid = found.conrelid AND a.attnum = ANY (found.conkey)
                OR a.attrelid = found.confrelid AND a.attnum = ANY (found.confkey)) AND NOT l.collisdeterministic)
            THEN 'One of its columns has a nondeterministic collation.'
        WHEN (SELECT count(DISTINCT a) < cardinality(found.conkey) FROM unnest(found.conkey) AS a) THEN 'It names a column twice.'
        -- Which is compared by the time zone, and entries are not a session's.
        WHEN EXISTS (SELECT FROM unnest(found.conkey, found.confkey) AS u (own, theirs)
            JOIN pg_attribute a ON a.attrelid = found.conrelid AND a.attnum = u.own
            JOIN pg_attribute b ON b.attrelid = found.confrelid AND b.attnum = u.theirs
            WHERE a.atttypid <> b.atttypid AND (a.atttypid = ANY ('{date,time,timestamp,timestamptz}'::regtype[]::oid[])
                OR b.atttypid = ANY ('{date,time,timestamp,timestamptz}'::regtype[]::oid[])))
            THEN 'It compares times of two types.'
    END;
    problem := coalesce(problem, tutti.entry_problem(found.conrelid, found.conkey));
    IF problem IS NOT NULL THEN
        RAISE feature_not_supported USING
            MESSAGE = format('foreign key "%s" of table "%s" cannot hold over all nodes', called, of_table), DETAIL = problem,
            HINT = 'With tutti.foreign_keys = ''global'' a foreign key is of plain columns of built-in types (numbers, texts, times, uuid, bytea, bool), NO ACTION, RESTRICT, ON DELETE CASCADE or SET NULL, between tables that are distributed BY HASH and not partitioned.';
    END IF;
    all_attnums := found.conkey || ARRAY(SELECT a FROM unnest(identity) WITH ORDINALITY AS u (a, place)
        WHERE a <> ALL (found.conkey) ORDER BY u.place);
    SELECT array_agg(a.attname ORDER BY u.place) INTO all_columns FROM unnest(all_attnums) WITH ORDINALITY AS u (attnum, place)
        JOIN pg_attribute a ON a.attrelid = found.conrelid AND a.attnum = u.attnum;

    EXECUTE format('CREATE TABLE %s (%s)', entries, tutti.entry_definitions(found.conrelid, all_attnums));
    EXECUTE format('ALTER TABLE %s ENABLE ROW LEVEL SECURITY', entries);
    EXECUTE format('CREATE INDEX ON %s (%s)', entries,
        (SELECT string_agg(quote_ident(c), ', ' ORDER BY p) FROM unnest(all_columns) WITH ORDINALITY AS u (c, p)));
    -- What the constraint's own triggers would see is not all there is.
    FOR other IN SELECT t.tgname, t.tgrelid::regclass AS relation FROM pg_trigger t WHERE t.tgconstraint = found.oid LOOP
        EXECUTE format('ALTER TABLE %s DISABLE TRIGGER %I', other.relation, other.tgname);
    END LOOP;
    UPDATE pg_constraint k SET convalidated = true WHERE k.oid = found.oid AND NOT k.convalidated;
    INSERT INTO tutti.reference (number, relation, foreign_key, attnums, columns, entry_attnums, entry_columns, placed_by,
            referred, through, map)
        VALUES (new_number, found.conrelid, found.oid, found.conkey, all_columns[1:cardinality(found.conkey)], all_attnums,
            all_columns, place.placed_by, found.confrelid, place.through, place.map);
    PERFORM tutti.bind_reference(new_number);
    PERFORM tutti.make_notes(k, bucket) FROM tutti.kept k WHERE k.kind = 'reference' AND k.number = new_number;
    IF found.confdeltype IN ('c', 'n') THEN
        PERFORM tutti.make_action(r, row_bucket) FROM tutti.reference r WHERE r.number = new_number;
    END IF;
    INSERT INTO pg_depend (classid, objid, objsubid, refclassid, refobjid, refobjsubid, deptype)
        SELECT 'pg_trigger'::regclass, t.oid, 0, 'pg_constraint'::regclass, found.oid, 0, 'a'
        FROM pg_trigger t WHERE t.tgrelid = found.conrelid AND t.tgname LIKE concat('tutti\_reference\_', new_number, '\__');
END $tutti$;
COMMENT ON FUNCTION tutti.make_reference IS 'Makes what keeps a foreign key over all nodes; it has no entries yet. The role must be the owner of the table, and the caller a gateway.';

-- Tells of a violation as PostgreSQL would if rows and not entries were what is compared. `violation`: its detail.
CREATE OR REPLACE FUNCTION tutti.raise_violation(constraint_name text, violation text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $tutti$
DECLARE
    acting name := CASE current_setting('role') WHEN 'none' THEN session_user ELSE current_setting('role') END;
    is_missing boolean := violation LIKE '% is not present in table %';
    it record;
BEGIN
    SELECT k.conname, k.confdeltype, k.confupdtype, c.relname, n.nspname, p.relname AS referred,
        (SELECT NOT s.relrowsecurity AND (has_table_privilege(acting, s.oid, 'SELECT') OR (SELECT bool_and(
                has_column_privilege(acting, s.oid, a, 'SELECT')) FROM unnest(CASE WHEN is_missing THEN k.conkey ELSE k.confkey END) AS a))
            FROM pg_class s WHERE s.oid = CASE WHEN is_missing THEN k.conrelid ELSE k.confrelid END) AS may_read
        INTO it
        FROM tutti.reference r JOIN pg_constraint k ON k.oid = r.foreign_key JOIN pg_class c ON c.oid = k.conrelid
        JOIN pg_namespace n ON n.oid = c.relnamespace JOIN pg_class p ON p.oid = k.confrelid
        WHERE concat('reference_', r.number) = constraint_name;
    -- What is deleted takes along what refers to it, or is forgotten by that.
    IF it.confupdtype = 'c' AND it.confdeltype IN ('c', 'n') AND NOT is_missing THEN
        RAISE feature_not_supported USING
            MESSAGE = format('what foreign key "%s" of table "%s" refers to cannot be changed', it.conname, it.relname),
            DETAIL = 'It says ON UPDATE CASCADE, and the rows that would be changed are on other nodes.',
            HINT = 'Insert a new row, change what refers to the old one, then delete that.';
    END IF;
    RAISE foreign_key_violation USING
        MESSAGE = CASE WHEN is_missing
            THEN format('insert or update on table "%s" violates foreign key constraint "%s"', it.relname, it.conname)
            ELSE format('update or delete on table "%s" violates foreign key constraint "%s" on table "%s"', it.referred, it.conname, it.relname)
            END,
        DETAIL = concat(CASE WHEN it.may_read THEN regexp_replace(violation, '^(.*) is (not present in|still referenced from) table ".*"\.$', '\1') ELSE 'Key' END,
            CASE WHEN is_missing THEN format(' is not present in table "%s".', it.referred)
                ELSE format(' is still referenced from table "%s".', it.relname) END),
        HINT = CASE WHEN it.confupdtype = 'c' AND NOT is_missing THEN 'Over nodes ON UPDATE CASCADE changes no rows.' ELSE '' END,
        SCHEMA = it.nspname, TABLE = it.relname, CONSTRAINT = it.conname;
END $tutti$;
COMMENT ON FUNCTION tutti.raise_violation IS 'Fails as PostgreSQL does for a foreign key, of which these are the entries'' constraint and detail. For the functions of this schema.';

-- `removed`, `added`: texts of arrays of entries. `checks`: what they refer to must be there at once.
CREATE OR REPLACE FUNCTION tutti.keep_reference(kept oid, removed text, added text, checks boolean, seal text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET DateStyle = 'ISO, YMD' SET TimeZone = 'UTC'
SET bytea_output = hex SET lc_messages = 'C' SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $tutti$
DECLARE
    entries text := format('tutti.%I', 'reference_' || kept);
    it tutti.reference;
    gone bigint;
    wanted bigint;
    violated text;
    violation text;
    add_entries text;
    -- Checks run code of the owner of what is referred to, as that owner, who may change what names without a schema mean
    -- here: nothing is called behind them.
    check_now text := format('SET CONSTRAINTS tutti.%I IMMEDIATE', 'reference_' || kept);
    check_later text := format('SET CONSTRAINTS tutti.%I DEFERRED', 'reference_' || kept);
BEGIN
    IF tutti.is_sealed(format('keep reference %s %s %s %s', kept, checks, encode(sha256(convert_to(removed, 'UTF8')), 'hex'),
            encode(sha256(convert_to(added, 'UTF8')), 'hex')), seal) IS NOT TRUE THEN
        RAISE insufficient_privilege USING MESSAGE = 'only a gateway can keep entries';
    END IF;
    SELECT r.* INTO it FROM tutti.reference r WHERE r.number = kept;
    IF removed <> '{}' THEN
        -- Rows may be alike in all that an entry has: of each as many as are gone.
        EXECUTE format('WITH r AS MATERIALIZED (SELECT (u.*)::%1$s AS entry, count(*) AS times FROM unnest($1::%1$s[]) AS u GROUP BY 1, (u.*)::text),
                d AS (DELETE FROM %1$s AS e USING r CROSS JOIN LATERAL (SELECT x.ctid AS at FROM %1$s AS x
                        WHERE %2$s AND (x.*)::text = (r.entry)::text LIMIT r.times FOR UPDATE OF x) AS l
                    WHERE e.ctid = l.at RETURNING 1)
                SELECT (SELECT count(*) FROM d), (SELECT sum(times) FROM r)', entries,
            -- By the index, wherever there is no NULL.
            (SELECT string_agg(format(CASE WHEN u.c = ANY (it.columns) OR a.attnotnull THEN 'x.%1$I = (r.entry).%1$I'
                    ELSE 'x.%1$I IS NOT DISTINCT FROM (r.entry).%1$I' END, u.c), ' AND ' ORDER BY u.place)
                FROM unnest(it.entry_columns, it.entry_attnums) WITH ORDINALITY AS u (c, attnum, place)
                JOIN pg_attribute a ON a.attrelid = it.relation AND a.attnum = u.attnum))
            INTO gone, wanted USING removed;
        IF gone <> wanted THEN
            RAISE internal_error USING
                MESSAGE = (SELECT format('foreign key "%s" has no entry of a row that was changed', k.conname)
                    FROM pg_constraint k WHERE k.oid = it.foreign_key),
                DETAIL = format('Of %s entries %s were found.', wanted, gone),
                HINT = 'Nothing was done. Run "tutti check"; drop the constraint and add it anew.';
        END IF;
    END IF;
    IF added <> '{}' THEN
        add_entries := format('INSERT INTO %1$s SELECT r.* FROM unnest($1::%1$s[]) AS r ORDER BY %2$s', entries,
            (SELECT string_agg(format('r.%I', c), ', ' ORDER BY p) FROM unnest(it.entry_columns) WITH ORDINALITY AS u (c, p)));
        EXECUTE add_entries USING added;
    END IF;
    IF checks THEN
        EXECUTE check_now;
        EXECUTE check_later;
    END IF;
EXCEPTION WHEN foreign_key_violation THEN
    GET STACKED DIAGNOSTICS violated = CONSTRAINT_NAME, violation = PG_EXCEPTION_DETAIL;
    PERFORM tutti.raise_violation(violated, violation);
END $tutti$;
COMMENT ON FUNCTION tutti.keep_reference IS 'Removes and adds entries of a foreign key that holds over all nodes, those that belong on this node. The caller must be a gateway.';

-- `entries`: text of an array of entries that are gone because what they refer to is deleted.
CREATE OR REPLACE FUNCTION tutti.action_of(kept oid, entries text, seal text) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $tutti$
BEGIN
    IF tutti.is_sealed(format('act reference %s %s', kept, encode(sha256(convert_to(entries, 'UTF8')), 'hex')), seal) IS NOT TRUE THEN
        RAISE insufficient_privilege USING MESSAGE = 'only a gateway can act for a foreign key';
    END IF;
    IF to_regprocedure(format('tutti.act_reference_%1$s(tutti.reference_%1$s[],regclass)', kept)) IS NULL THEN
        RAISE object_not_in_prerequisite_state USING
            MESSAGE = (SELECT format('what foreign key "%s" does to rows is gone', k.conname) FROM tutti.reference r
                JOIN pg_constraint k ON k.oid = r.foreign_key WHERE r.number = kept),
            DETAIL = format('The function tutti.act_reference_%s was dropped or renamed.', kept),
            HINT = 'Drop the constraint and add it anew.';
    END IF;
    RETURN (SELECT format('SELECT tutti.act_reference_%1$s($1::tutti.reference_%1$s[], %2$s::pg_catalog.regclass)', kept, r.relation)
        FROM tutti.reference r WHERE r.number = kept);
END $tutti$;
COMMENT ON FUNCTION tutti.action_of IS 'What to run for the rows of entries that are gone. The caller must be a gateway.';

-- The client's search_path is that of the triggers that are fired: so nothing is called here by a name alone.
CREATE OR REPLACE FUNCTION tutti.act_on_rows(kept pg_catalog.oid, entries pg_catalog.text, seal pg_catalog.text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER AS $tutti$
BEGIN
    EXECUTE tutti.action_of(kept, entries, seal) USING entries;
END $tutti$;
COMMENT ON FUNCTION tutti.act_on_rows IS 'Deletes the rows of this node that refer to what is gone, or has them refer to nothing, as their foreign key says. The caller must be a gateway.';

-- Of rows, and of values of unique indexes over all nodes, that others may refer to. `later`: text of an array of the
-- numbers of those that are checked then.
CREATE OR REPLACE FUNCTION tutti.check_references(later text, seal text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lc_messages = 'C' AS $tutti$
DECLARE
    written oid[];
    names text;
    check_now text;
    check_later text;
    violated text;
    violation text;
BEGIN
    IF tutti.is_sealed('check references ' || later, seal) IS NOT TRUE THEN
        RAISE insufficient_privilege USING MESSAGE = 'only a gateway can keep entries';
    END IF;
    written := tutti.written_relations();
    -- (One that the same statement has dropped is not forgotten yet.)
    SELECT string_agg(format('tutti.%I', concat('reference_', r.number)), ', ') INTO names FROM tutti.reference r
        JOIN pg_constraint k ON k.oid = r.foreign_key
        WHERE r.number <> ALL (later::oid[]) AND (r.referred = ANY (written)
            OR to_regclass(concat('tutti.reference_', r.number)) = ANY (written)
            OR to_regclass('tutti.unique_' || r.through) = ANY (written));
    -- As above: nothing is called behind a check.
    check_now := format('SET CONSTRAINTS %s IMMEDIATE', names);
    check_later := format('SET CONSTRAINTS %s DEFERRED', names);
    IF names IS NOT NULL THEN
        EXECUTE check_now;
        EXECUTE check_later;
    END IF;
EXCEPTION WHEN foreign_key_violation THEN
    GET STACKED DIAGNOSTICS violated = CONSTRAINT_NAME, violation = PG_EXCEPTION_DETAIL;
    PERFORM tutti.raise_violation(violated, violation);
END $tutti$;
COMMENT ON FUNCTION tutti.check_references IS 'Fails if what this transaction has changed here is referred to over nodes, or refers to what is not there. The caller must be a gateway.';

-- Why a foreign key cannot be kept over all nodes any more, if so: what has become of its tables.
CREATE OR REPLACE FUNCTION tutti.reference_problem(known tutti.reference) RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET row_security = on AS $tutti$
BEGIN
    RETURN CASE
        WHEN EXISTS (SELECT FROM unnest(known.entry_attnums, known.entry_columns) AS u (attnum, called)
                LEFT JOIN pg_attribute a ON a.attrelid = known.relation AND a.attnum = u.attnum WHERE a.attname IS DISTINCT FROM u.called)
            THEN 'What keeps it knows its columns, and those by which its rows differ, by the names that they had.'
        WHEN NOT EXISTS (SELECT FROM tutti.placement p JOIN pg_class c ON c.oid = p.relation
                WHERE p.relation = known.relation AND p.kind = 'hash' AND NOT c.relispartition AND c.relpersistence = 'p')
            THEN 'Its table would not be a logged one that is distributed BY HASH any more.'
        WHEN NOT EXISTS (SELECT FROM tutti.place_of_reference(known.foreign_key) AS w JOIN pg_class c ON c.oid = known.referred
                WHERE w.placed_by = known.placed_by AND w.map = known.map AND w.through IS NOT DISTINCT FROM known.through
                AND c.relpersistence = 'p')
            THEN 'The rows that it refers to would be on other nodes than its entries.'
        WHEN EXISTS (SELECT FROM pg_class c JOIN pg_constraint k ON k.oid = known.foreign_key AND k.confdeltype IN ('c', 'n')
                WHERE c.oid = known.relation AND c.relrowsecurity AND c.relforcerowsecurity)
            THEN 'Row security, forced on the owner of its table, could hide rows that it deletes or changes.'
        WHEN NOT (SELECT tutti.has_notes(k) FROM tutti.kept k WHERE k.kind = 'reference' AND k.number = known.number)
            THEN 'The triggers that note its changes would be off, or be called otherwise.'
        WHEN EXISTS (SELECT FROM pg_trigger t WHERE t.tgconstraint = known.foreign_key AND t.tgenabled <> 'D')
            THEN 'Its own triggers would be on, which see the rows of one node.'
        WHEN NOT EXISTS (SELECT FROM pg_constraint k JOIN pg_trigger t ON t.tgconstraint = k.oid
                WHERE k.conrelid = to_regclass(concat('tutti.reference_', known.number)) AND k.conname = concat('reference_', known.number)
                HAVING count(*) = 4 AND bool_and(t.tgenabled = 'O'))
            THEN 'The triggers that check its entries would be off.'
    END;
END $tutti$;
COMMENT ON FUNCTION tutti.reference_problem IS 'Why a foreign key cannot be kept over all nodes, if so.';
