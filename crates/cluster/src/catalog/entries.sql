-- Entries: what is kept, spread by its values, of rows that are spread otherwise. Part of the schema tutti.
--
-- A node sees whether values are unique, and whether what they refer to is there, among its own rows only. So a unique
-- index that does not contain the distribution key (unique.sql), and a foreign key that does not pair the distribution
-- keys (references.sql), has a table of its own on every node, in which the values of each row have an entry on the node
-- that their hash says. There PostgreSQL itself decides: by the entries' primary key, or by their own foreign key.
--
-- What changes is noted by constraint triggers that are deferred: the server keeps their events in memory, and forgets
-- those of what is undone. A gateway has them fire after each statement, by drain_entries, which sends a notice for each
-- change, and brings these to the entries, by keep_unique and keep_reference, and to the rows that refer to what is
-- gone, by act_on_rows. If one fires otherwise, at COMMIT at the
-- latest, nobody would keep the entries: it fails.

CREATE TABLE IF NOT EXISTS tutti.unique_index (
    number oid PRIMARY KEY,
    relation oid NOT NULL,
    index oid NOT NULL UNIQUE,
    attnums smallint[] NOT NULL,
    columns name[] NOT NULL,
    key name NOT NULL
);
COMMENT ON TABLE tutti.unique_index IS 'Unique indexes that hold over all nodes without containing the distribution key, by the number that the index got on node 1: its entries are in unique_NUMBER. Tables and indexes are named by their oid on this server, columns by what they were called then.';

CREATE TABLE IF NOT EXISTS tutti.reference (
    number oid PRIMARY KEY,
    relation oid NOT NULL,
    foreign_key oid NOT NULL UNIQUE,
    attnums smallint[] NOT NULL,
    columns name[] NOT NULL,
    entry_attnums smallint[] NOT NULL,
    entry_columns name[] NOT NULL,
    placed_by smallint NOT NULL,
    referred oid NOT NULL,
    through oid,
    map integer NOT NULL REFERENCES tutti.map
);
COMMENT ON TABLE tutti.reference IS 'Foreign keys that hold over all nodes without pairing distribution keys, by the number that the constraint got on node 1: its entries are in reference_NUMBER, on the nodes of the rows that are referred to. Tables and constraints are named by their oid on this server, columns by what they were called then.';
COMMENT ON COLUMN tutti.reference.placed_by IS 'Which of the columns says, by its hash, where an entry is: counted from 1.';
COMMENT ON COLUMN tutti.reference.through IS 'The number of the unique index over all nodes whose entries are referred to; NULL: the rows themselves.';

DROP FUNCTION IF EXISTS tutti.drain_unique(text);
DROP FUNCTION IF EXISTS tutti.unique_entries(oid, text);
DROP FUNCTION IF EXISTS tutti.forget_unique();
DROP FUNCTION IF EXISTS tutti.refuse_namesakes(oid);

CREATE OR REPLACE VIEW tutti.kept AS
    SELECT u.number, 'unique' AS kind, u.relation, u.index AS object, u.columns, u.columns || u.key AS entry_columns,
        1::smallint AS placed_by
    FROM tutti.unique_index u
    UNION ALL SELECT r.number, 'reference', r.relation, r.foreign_key, r.columns, r.entry_columns, r.placed_by
    FROM tutti.reference r WHERE EXISTS (SELECT FROM pg_constraint k WHERE k.oid = r.foreign_key);
COMMENT ON VIEW tutti.kept IS 'All of which entries are kept: these are in KIND_NUMBER, their columns are entry_columns, and a row with a NULL in columns has none.';

-- What a gateway knows of a relation: of what it is that entries are kept, and which of its columns entries refer to.
CREATE OR REPLACE FUNCTION tutti.kept_of(it oid) RETURNS jsonb
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp SET row_security = on AS $tutti$
    SELECT nullif(jsonb_strip_nulls(jsonb_build_object(
        'unique', (SELECT jsonb_agg(jsonb_build_object('number', u.number::bigint, 'columns', u.attnums) ORDER BY u.number)
            FROM tutti.unique_index u WHERE u.relation = it),
        'references', (SELECT jsonb_agg(jsonb_build_object('number', r.number::bigint, 'columns', r.entry_attnums, 'map', r.map,
                'name', k.conname, 'deferrable', k.condeferrable, 'deferred', k.condeferred) ORDER BY r.number)
            FROM tutti.reference r JOIN pg_constraint k ON k.oid = r.foreign_key WHERE r.relation = it),
        'referred', (SELECT jsonb_agg(DISTINCT a) FROM tutti.reference r JOIN pg_constraint k ON k.oid = r.foreign_key
            CROSS JOIN LATERAL unnest(k.confkey) AS a WHERE r.referred = it))), '{}')
$tutti$;
COMMENT ON FUNCTION tutti.kept_of IS 'What a gateway knows of a relation that entries are kept of, or refer to.';

-- SET CONSTRAINTS means all constraints of a name that are in a schema.
CREATE OR REPLACE FUNCTION tutti.refuse_namesakes(it tutti.kept) RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $tutti$
DECLARE
    other text;
BEGIN
    SELECT format('constraint "%s"', k.conname) INTO other
        FROM pg_class c JOIN pg_constraint k ON k.connamespace = c.relnamespace
        WHERE c.oid = it.relation
        AND k.conname = ANY (ARRAY(SELECT concat('tutti_', it.kind, '_', it.number, '_', s)::name FROM unnest('{i,u,d}'::text[]) AS s))
        AND NOT EXISTS (SELECT FROM pg_trigger t JOIN pg_proc p ON p.oid = t.tgfoid
            WHERE t.tgconstraint = k.oid AND t.tgrelid = it.relation AND p.pronamespace = 'tutti'::regnamespace
            AND p.proname = concat('note_', it.kind, '_', it.number)) LIMIT 1;
    IF other IS NOT NULL THEN
        RAISE reserved_name USING MESSAGE = format('%s has a name that Tutti needs', other),
            HINT = 'Call it otherwise.';
    END IF;
END $tutti$;
COMMENT ON FUNCTION tutti.refuse_namesakes IS 'Fails if a constraint that Tutti has not made is called like one that notes changes of this, in its schema. For the functions of this schema.';

-- Code of others may be run while changes are told, and could tell some as well: so each is sealed.
CREATE OR REPLACE FUNCTION tutti.tell_changed(of_kind text, kept oid, sign text, in_bucket bigint, entry text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $tutti$
DECLARE
    told text := concat(of_kind, ' ', kept, ' ', sign, ' ', in_bucket);
BEGIN
    RAISE INFO USING MESSAGE = concat(told, ' ', tutti.seal_of(concat(pg_backend_pid(), ' ',
        encode(timestamptz_send(now()), 'hex'), ' told ', told, ' ', entry))), DETAIL = entry;
END $tutti$;
-- What notes changes of indexes that earlier versions have made calls this.
CREATE OR REPLACE FUNCTION tutti.tell_changed(kept oid, sign text, in_bucket bigint, entry text) RETURNS void
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $tutti$
    SELECT tutti.tell_changed('unique', kept, sign, in_bucket, entry)
$tutti$;
COMMENT ON FUNCTION tutti.tell_changed(text, oid, text, bigint, text) IS 'Tells a gateway of an entry that is gone or there. For the functions of this schema.';
COMMENT ON FUNCTION tutti.tell_changed(oid, text, bigint, text) IS 'As the other, of a unique index. For the functions of this schema.';

-- Why columns cannot be in entries, if so.
CREATE OR REPLACE FUNCTION tutti.entry_problem(of_table oid, wanted smallint[]) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $tutti$
    SELECT CASE WHEN a.attgenerated <> '' THEN format('Column "%s" is generated.', a.attname)
        ELSE format('The type of column "%s" is %s.', a.attname, format_type(a.atttypid, NULL)) END
    FROM unnest(wanted) AS k (attnum) JOIN pg_attribute a ON a.attrelid = of_table AND a.attnum = k.attnum
    WHERE a.attgenerated <> '' OR a.atttypid <> ALL (
        '{bool,int2,int4,int8,text,varchar,bpchar,uuid,bytea,date,time,timestamp,timestamptz,numeric}'::regtype[]::oid[])
    ORDER BY a.attgenerated LIMIT 1
$tutti$;
COMMENT ON FUNCTION tutti.entry_problem IS 'Why a column cannot be in entries, if so. For the functions of this schema.';

-- The columns of entries, as CREATE TABLE has them. Values are equal there as they are to the index: no collation that it
-- may have tells more of them apart, or fewer.
CREATE OR REPLACE FUNCTION tutti.entry_definitions(of_table oid, wanted smallint[]) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $tutti$
    SELECT string_agg(format('%I %s%s', a.attname, format_type(a.atttypid, a.atttypmod),
        CASE WHEN a.attcollation <> 0 THEN ' COLLATE "C"' ELSE '' END), ', ' ORDER BY k.position)
    FROM unnest(wanted) WITH ORDINALITY AS k (attnum, position)
    JOIN pg_attribute a ON a.attrelid = of_table AND a.attnum = k.attnum
$tutti$;
COMMENT ON FUNCTION tutti.entry_definitions IS 'The columns of entries. For the functions of this schema.';

-- `bucket` computes the bucket of the value that stands for {} in it.
CREATE OR REPLACE FUNCTION tutti.make_notes(it tutti.kept, bucket text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $tutti$
DECLARE
    entries text := format('tutti.%I', concat(it.kind, '_', it.number));
    noted text := format('tutti.%I', concat('note_', it.kind, '_', it.number));
    named text := concat('tutti_', it.kind, '_', it.number, '_');
    -- As a literal: names of columns are whatever their table's owner wants.
    body text := $body$
BEGIN
    IF TG_OP = 'TRUNCATE' THEN
        TRUNCATE %1$s;
        RETURN NULL;
    END IF;
    PERFORM tutti.expect_drain(%2$L, %3$s);
    IF TG_OP <> 'INSERT' AND NOT (%4$s) THEN
        PERFORM tutti.tell_changed(%2$L, %3$s, '-', %5$s, ROW(%6$s)::%1$s::text);
    END IF;
    IF TG_OP <> 'DELETE' AND NOT (%7$s) THEN
        PERFORM tutti.tell_changed(%2$L, %3$s, '+', %8$s, ROW(%9$s)::%1$s::text);
    END IF;
    RETURN NULL;
END $body$;
    has_null text[];
    in_bucket text[];
    entry text[];
    as_texts text[];
BEGIN
    SELECT array_agg(f.has_null ORDER BY f.side DESC), array_agg(f.in_bucket ORDER BY f.side DESC),
            array_agg(f.entry ORDER BY f.side DESC), array_agg(f.as_texts ORDER BY f.side DESC)
        INTO has_null, in_bucket, entry, as_texts
        FROM (SELECT side,
            (SELECT string_agg(format('%s.%I IS NULL', side, c), ' OR ') FROM unnest(it.columns) AS u (c)) AS has_null,
            replace(bucket, '{}', format('%s.%I', side, it.columns[it.placed_by])) AS in_bucket,
            (SELECT string_agg(format('%s.%I', side, c), ', ' ORDER BY p)
                FROM unnest(it.entry_columns) WITH ORDINALITY AS u (c, p)) AS entry,
            (SELECT string_agg(format('%s.%I::text', side, c), ', ' ORDER BY p)
                FROM unnest(it.entry_columns) WITH ORDINALITY AS u (c, p)) AS as_texts
        FROM unnest('{OLD,NEW}'::text[]) AS side) AS f;
    EXECUTE format('CREATE FUNCTION %s() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
        SET search_path = pg_catalog, pg_temp AS %L', noted, format(body, entries, it.kind, it.number,
            has_null[1], in_bucket[1], entry[1], has_null[2], in_bucket[2], entry[2]));
    EXECUTE format('REVOKE ALL ON FUNCTION %s() FROM PUBLIC', noted);

    EXECUTE format('CREATE CONSTRAINT TRIGGER %I AFTER INSERT ON %s DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
            WHEN (NOT (%s)) EXECUTE FUNCTION %s()', named || 'i', it.relation::regclass, has_null[2], noted);
    -- As texts, too: 1.0 and 1.00 are equal, and written otherwise. (Not as texts alone: one may be two times of day.)
    EXECUTE format('CREATE CONSTRAINT TRIGGER %I AFTER UPDATE ON %s DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
            WHEN ((%s) IS DISTINCT FROM (%s) OR (%s) IS DISTINCT FROM (%s)) EXECUTE FUNCTION %s()',
        named || 'u', it.relation::regclass, entry[1], entry[2], as_texts[1], as_texts[2], noted);
    EXECUTE format('CREATE CONSTRAINT TRIGGER %I AFTER DELETE ON %s DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
            WHEN (NOT (%s)) EXECUTE FUNCTION %s()', named || 'd', it.relation::regclass, has_null[1], noted);
    EXECUTE format('CREATE TRIGGER %I AFTER TRUNCATE ON %s EXECUTE FUNCTION %s()', named || 't', it.relation::regclass, noted);
    -- Also where other triggers are off.
    EXECUTE (SELECT string_agg(format('ALTER TABLE %s ENABLE ALWAYS TRIGGER %I', it.relation::regclass, named || suffix), '; ')
        FROM unnest('{i,u,d,t}'::text[]) AS s (suffix));
    PERFORM tutti.refuse_namesakes(it);
    -- Like the triggers of foreign keys: they are no part of the table's definition, which dumps and \d show, and DISABLE
    -- TRIGGER USER is not about them.
    UPDATE pg_trigger t SET tgisinternal = true WHERE t.tgrelid = it.relation
        AND t.tgname = ANY (ARRAY(SELECT named || suffix FROM unnest('{i,u,d,t}'::text[]) AS s (suffix)));
END $tutti$;
COMMENT ON FUNCTION tutti.make_notes IS 'Makes the triggers by which changes are told of what entries are kept of. For the functions of this schema.';

CREATE OR REPLACE FUNCTION tutti.draining() RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $tutti$
BEGIN
    RETURN tutti.seal_of(concat('draining ', pg_backend_pid(), ' ', encode(timestamptz_send(now()), 'hex')));
END $tutti$;
COMMENT ON FUNCTION tutti.draining IS 'What the setting tutti.draining is while a gateway reads what has changed. For the functions of this schema.';

CREATE OR REPLACE FUNCTION tutti.expect_drain(of_kind text, changed oid) RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $tutti$
BEGIN
    IF current_setting('tutti.draining', true) IS DISTINCT FROM tutti.draining() THEN
        IF NOT EXISTS (SELECT FROM tutti.kept k WHERE k.kind = of_kind AND k.number = changed) THEN
            RAISE serialization_failure USING MESSAGE = 'could not serialize access due to concurrent update',
                DETAIL = 'A table was changed of which entries are kept that the transaction''s snapshot does not show: they were made after it.',
                HINT = 'The transaction might succeed if retried.';
        END IF;
        RAISE feature_not_supported USING
            MESSAGE = (SELECT CASE k.kind
                    WHEN 'unique' THEN format('the entries of index "%s", which is unique over all nodes, would not be kept here',
                        (SELECT c.relname FROM pg_class c WHERE c.oid = k.object))
                    ELSE format('the entries of foreign key "%s", which holds over all nodes, would not be kept here',
                        (SELECT c.conname FROM pg_constraint c WHERE c.oid = k.object)) END
                FROM tutti.kept k WHERE k.kind = of_kind AND k.number = changed),
            DETAIL = 'Its table was changed by code that the gateway does not know of, or past the gateway; or behind SET CONSTRAINTS ALL IMMEDIATE.',
            HINT = 'Send the statement that changes the table through the gateway, outside of functions; and name the constraints in SET CONSTRAINTS.';
    END IF;
END $tutti$;
-- What notes changes of indexes that earlier versions have made calls this.
CREATE OR REPLACE FUNCTION tutti.expect_drain(changed oid) RETURNS void
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $tutti$
    SELECT tutti.expect_drain('unique', changed)
$tutti$;
COMMENT ON FUNCTION tutti.expect_drain(oid) IS 'As the other, of a unique index. For the functions of this schema.';
COMMENT ON FUNCTION tutti.expect_drain(text, oid) IS 'Fails unless a gateway is reading what has changed. For the functions of this schema.';

-- It has locked them, so they stay, and others' may go.
CREATE OR REPLACE FUNCTION tutti.written_relations() RETURNS oid[]
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $tutti$
    SELECT array_agg(DISTINCT l.relation) FROM pg_locks l WHERE l.pid = pg_backend_pid() AND l.locktype = 'relation'
        AND l.granted AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
        AND l.mode NOT IN ('AccessShareLock', 'RowShareLock')
$tutti$;
COMMENT ON FUNCTION tutti.written_relations IS 'On which relations the transaction has a lock that whoever writes has. For the functions of this schema.';

-- Whatever SET CONSTRAINTS fires runs as the client, and not as the owner of this schema: names of constraints are not
-- unique, though there should be no others of these names.
CREATE OR REPLACE FUNCTION tutti.begin_drain(seal text) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $tutti$
DECLARE
    locked oid[];
    written tutti.kept;
    names text[];
BEGIN
    IF tutti.is_sealed('drain entries', seal) IS NOT TRUE THEN
        RAISE insufficient_privilege USING MESSAGE = 'only a gateway can keep entries';
    END IF;
    -- Once, and not for each of what entries are kept of: it reads all locks of the server.
    locked := tutti.written_relations();
    FOR written IN SELECT k.* FROM tutti.kept k WHERE k.relation = ANY (locked) LOOP
        PERFORM tutti.refuse_namesakes(written);
        SELECT names || array_agg(format('%I.%I', n.nspname, concat('tutti_', written.kind, '_', written.number, '_', s.suffix)))
            INTO names FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
            CROSS JOIN unnest('{i,u,d}'::text[]) AS s (suffix) WHERE c.oid = written.relation;
    END LOOP;
    names := names || ARRAY(SELECT format('tutti.%I', t.tgname) FROM tutti.reference r
        JOIN pg_trigger t ON t.tgrelid = to_regclass(concat('tutti.reference_', r.number)) AND t.tgname = concat('orphans_reference_', r.number)
        WHERE t.tgrelid = ANY (locked) ORDER BY r.number);
    PERFORM set_config('tutti.draining', tutti.draining(), true);
    RETURN array_to_string(names, ', ');
END $tutti$;
COMMENT ON FUNCTION tutti.begin_drain IS 'The constraints that note changes of what entries are kept of; from now on these may fire. The caller must be a gateway.';

-- What it tells is read by another node, under the same settings.
CREATE OR REPLACE FUNCTION tutti.drain_entries(seal text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET DateStyle = 'ISO, YMD' SET TimeZone = 'UTC'
SET bytea_output = hex SET client_min_messages = error AS $tutti$
DECLARE
    names text := tutti.begin_drain(seal);
BEGIN
    IF names <> '' THEN
        EXECUTE format('SET CONSTRAINTS %s IMMEDIATE', names);
        EXECUTE format('SET CONSTRAINTS %s DEFERRED', names);
    END IF;
    PERFORM set_config('tutti.draining', '', true);
END $tutti$;
COMMENT ON FUNCTION tutti.drain_entries IS 'Tells by a notice each what this transaction has changed here, since it was asked last, of what entries are kept of. The caller must be a gateway.';

-- The entries that rows of this node have, where they are being made: their bucket, and the entry. It runs as the
-- client, the table's owner: to plan the query runs code of the owner's. No row may be hidden.
CREATE OR REPLACE FUNCTION tutti.entries_of_rows(wanted_kind text, wanted oid, bucket text) RETURNS TABLE (in_bucket bigint, entry text)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET row_security = on SET DateStyle = 'ISO, YMD' SET TimeZone = 'UTC'
SET bytea_output = hex AS $tutti$
DECLARE
    it tutti.kept;
BEGIN
    SELECT k.* INTO it FROM tutti.kept k WHERE k.kind = wanted_kind AND k.number = wanted;
    SET LOCAL row_security = off;
    RETURN QUERY EXECUTE format('SELECT %s, ROW(%s)::tutti.%I::text FROM ONLY %s AS t WHERE %s',
        replace(bucket, '{}', format('t.%I', it.columns[it.placed_by])),
        (SELECT string_agg(format('t.%I', c), ', ' ORDER BY p) FROM unnest(it.entry_columns) WITH ORDINALITY AS u (c, p)),
        concat(it.kind, '_', it.number), it.relation::regclass,
        (SELECT string_agg(format('t.%I IS NOT NULL', c), ' AND ') FROM unnest(it.columns) AS u (c)));
END $tutti$;
COMMENT ON FUNCTION tutti.entries_of_rows IS 'The entries of rows of this node in what is being made.';

-- What refers to entries goes before these. An index that was rebuilt CONCURRENTLY is another of the same columns.
CREATE OR REPLACE FUNCTION tutti.forget_entries() RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET client_min_messages = warning AS $tutti$
DECLARE
    gone record;
    other oid;
BEGIN
    FOR gone IN SELECT r.* FROM tutti.reference r
        WHERE NOT EXISTS (SELECT FROM pg_constraint c WHERE c.oid = r.foreign_key) ORDER BY r.number
    LOOP
        EXECUTE format('DROP FUNCTION IF EXISTS tutti.%I(), tutti.%I() CASCADE', 'note_reference_' || gone.number, 'tell_reference_' || gone.number);
        EXECUTE format('DROP TABLE IF EXISTS tutti.%I', 'reference_' || gone.number);
        DELETE FROM tutti.reference r WHERE r.number = gone.number;
    END LOOP;
    PERFORM tutti.own_action(r) FROM tutti.reference r;
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
COMMENT ON FUNCTION tutti.forget_entries IS 'Drops the entries of what is gone, and what has kept them.';

-- Whether what notes changes is there, and on.
CREATE OR REPLACE FUNCTION tutti.has_notes(it tutti.kept) RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $tutti$
    SELECT count(*) = 4 FROM pg_trigger t JOIN pg_proc p ON p.oid = t.tgfoid AND p.pronamespace = 'tutti'::regnamespace
        LEFT JOIN pg_constraint k ON k.oid = t.tgconstraint
    WHERE t.tgrelid = it.relation AND t.tgenabled = 'A' AND p.proname = concat('note_', it.kind, '_', it.number)
        AND coalesce(k.conname, t.tgname) = t.tgname
        AND t.tgname = ANY (ARRAY(SELECT concat('tutti_', it.kind, '_', it.number, '_', s) FROM unnest('{i,u,d,t}'::text[]) AS s))
$tutti$;
COMMENT ON FUNCTION tutti.has_notes IS 'Whether the triggers that note changes are there, and on. For the functions of this schema.';
