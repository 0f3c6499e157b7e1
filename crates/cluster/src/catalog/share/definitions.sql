-- How node 1 tells other nodes what a table is, with all that it needs. Part of the schema tutti.
--
-- tutti.definitions walks pg_depend from some relations to what they need, and writes for each object
-- how to see whether it is there and how to make it, in an order in which that works. It reads
-- catalogs only, as the transaction that calls it sees them. The order is that of creation (of OIDs),
-- tables before what is part of them, columns' defaults among it; functions are made without a look
-- into their bodies. What names something that was made after it waits for that. Temporary objects
-- are nobody's.
--
-- What it calls is plpgsql throughout: functions in SQL are planned anew by each statement that calls
-- them, and planning is most of what this costs.
--
-- tutti.make_definitions makes on another node what is not there. It runs as the owner of the schema
-- tutti, because what a table needs may belong to others than its owner. PostgreSQL computes what is
-- constant in an expression where it plans or compares it, and reads the constants of a user's type where
-- it parses them: statements with such expressions are run as the object's owner, by tutti.run_as.

-- Runs a statement whose $1 are rows, which are read before: code that it runs finds them in no statement's text.
CREATE OR REPLACE FUNCTION tutti.run_with_rows(statement text, given anyarray) RETURNS void LANGUAGE plpgsql AS $tutti$
BEGIN
    EXECUTE statement USING given;
END $tutti$;

-- What of the catalogs has changed between two looks at tutti.schema_counts, but for what a statement makes: a
-- 'function', 'domain', 'view' or 'table', or a 'part' of a table; '': nothing. What code does meanwhile comes on top
-- of it, and stands out.
CREATE OR REPLACE FUNCTION tutti.changed_beside(makes text, before jsonb, behind jsonb) RETURNS text
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $tutti$
BEGIN
    RETURN (SELECT string_agg(c.catalog, ', ' ORDER BY c.catalog) FROM (
        -- (Sessions may quote all names.)
        SELECT trim(BOTH '"' FROM b.key) AS catalog, (b.value -> 0)::bigint - (a.value -> 0)::bigint AS inserted,
            (b.value -> 1)::bigint - (a.value -> 1)::bigint AS updated,
            (b.value -> 2)::bigint - (a.value -> 2)::bigint AS deleted
        FROM jsonb_each(before) a JOIN jsonb_each(behind) b ON b.key = a.key) AS c
        WHERE c.inserted + c.updated + c.deleted > 0 AND CASE makes
            WHEN 'function' THEN c.catalog <> 'pg_proc' OR c.inserted > 1 OR c.updated + c.deleted > 0
            WHEN 'domain' THEN c.deleted + c.updated > 0 OR c.catalog <> 'pg_constraint'
                AND (c.catalog <> 'pg_type' OR c.inserted > 2)
            WHEN 'view' THEN c.deleted > 0 OR CASE c.catalog WHEN 'pg_class' THEN c.inserted > 1
                WHEN 'pg_type' THEN c.inserted > 2 OR c.updated > 0 WHEN 'pg_rewrite' THEN c.inserted > 1 OR c.updated > 0
                WHEN 'pg_attribute' THEN c.updated > 0 ELSE true END
            -- With its TOAST table, and sequences of identities.
            WHEN 'table' THEN c.deleted > 0 OR c.catalog = 'pg_type' AND (c.inserted > 2 OR c.updated > 0)
                OR c.catalog NOT IN ('pg_type', 'pg_class', 'pg_attribute', 'pg_attrdef', 'pg_sequence', 'pg_index',
                    'pg_inherits', 'pg_constraint')
            -- What belongs to a table is its owner's alone, and all that is done to the table is done as the owner.
            WHEN 'part' THEN c.catalog IN ('pg_class', 'pg_rewrite') AND c.deleted > 0
                OR c.catalog NOT IN ('pg_class', 'pg_rewrite', 'pg_attribute', 'pg_attrdef', 'pg_constraint', 'pg_index',
                    'pg_inherits', 'pg_trigger', 'pg_policy')
            ELSE true END);
END $tutti$;

-- What tutti.run_as has asked for, as whoever this is. What goes wrong is told without the statement.
CREATE OR REPLACE FUNCTION tutti.run_work() RETURNS boolean LANGUAGE plpgsql AS $tutti$
DECLARE
    statement pg_catalog.text := pg_catalog.current_setting('tutti.work');
    given pg_catalog.text := pg_catalog.current_setting('tutti.work_rows');
    as_rows pg_catalog.text := pg_catalog.current_setting('tutti.work_type');
    makes pg_catalog.text := pg_catalog.current_setting('tutti.work_makes');
    before pg_catalog.jsonb := tutti.schema_counts();
    changed pg_catalog.text;
    m pg_catalog.text; d pg_catalog.text; h pg_catalog.text; e pg_catalog.text;
    s pg_catalog.text; t pg_catalog.text; c pg_catalog.text; y pg_catalog.text; k pg_catalog.text;
BEGIN
    -- Nor in a setting.
    -- What is read is all there is, and no policy is a part of the query.
    IF pg_catalog.starts_with(statement, 'DECLARE') THEN
        PERFORM pg_catalog.set_config('row_security', 'off', true);
    END IF;
    PERFORM pg_catalog.set_config('tutti.work_rows', '', true),
        pg_catalog.set_config('search_path', pg_catalog.current_setting('tutti.work_path'), true);
    IF as_rows OPERATOR(pg_catalog.=) '' THEN
        EXECUTE statement;
    ELSIF as_rows OPERATOR(pg_catalog.=) 'pg_catalog.text' THEN
        EXECUTE statement USING given;
    ELSE
        EXECUTE pg_catalog.format('SELECT tutti.run_with_rows($1, tutti.rows_input($2, NULL::%s))', as_rows)
            USING statement, given;
    END IF;
    IF makes OPERATOR(pg_catalog.<>) 'anything' THEN
        changed := tutti.changed_beside(makes, before, tutti.schema_counts());
    END IF;
    IF changed IS NOT NULL THEN
        RAISE insufficient_privilege USING
            MESSAGE = 'code of a table, or of what it needs, has changed the schema where it may not',
            DETAIL = pg_catalog.format('It ran on a node where definitions are made or rows are moved, and has changed %s.', changed);
    END IF;
    RETURN true;
EXCEPTION WHEN OTHERS OR query_canceled OR assert_failure THEN
    GET STACKED DIAGNOSTICS m = MESSAGE_TEXT, d = PG_EXCEPTION_DETAIL, h = PG_EXCEPTION_HINT, e = RETURNED_SQLSTATE,
        s = SCHEMA_NAME, t = TABLE_NAME, c = COLUMN_NAME, y = PG_DATATYPE_NAME, k = CONSTRAINT_NAME;
    IF e OPERATOR(pg_catalog.=) '42501' AND coalesce(h, '') OPERATOR(pg_catalog.=) '' AND changed IS NULL THEN
        h := pg_catalog.format('This was done as role %I, the owner, for it may run code of the role. The owner needs the rights for it: those to use what is named, to read and write where rows move.', current_user);
    END IF;
    RAISE EXCEPTION USING MESSAGE = m, DETAIL = d, HINT = h, ERRCODE = e,
        SCHEMA = s, TABLE = t, COLUMN = c, DATATYPE = y, CONSTRAINT = k;
END $tutti$;

-- The cursors of this session, but for the one that this statement declares.
CREATE OR REPLACE FUNCTION tutti.open_cursors(statement text) RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET TimeZone = 'UTC' AS $tutti$
BEGIN
    RETURN coalesce((SELECT string_agg(format('%s %s %s', c.name, c.creation_time, c.statement), ' ' ORDER BY c.name)
        FROM pg_cursors c WHERE c.statement <> open_cursors.statement), '');
END $tutti$;

-- How many rows this transaction has changed in tables of users' but this one (and its partitions), where
-- triggers and foreign keys are off; else NULL. What is changed must be counted.
CREATE OR REPLACE FUNCTION tutti.written_beside(target oid) RETURNS numeric
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $tutti$
BEGIN
    IF target IS NULL OR current_setting('session_replication_role') <> 'replica' THEN
        RETURN NULL;
    END IF;
    RETURN (SELECT sum(pg_stat_get_xact_tuples_inserted(c.oid) + pg_stat_get_xact_tuples_updated(c.oid)
            + pg_stat_get_xact_tuples_deleted(c.oid))
        FROM pg_class c WHERE c.relkind = 'r' AND c.oid >= 16384
            AND c.oid <> ALL (ARRAY(SELECT target UNION ALL SELECT p.relid FROM pg_partition_tree(target) p)));
END $tutti$;

-- Runs a statement as a role that may do no more than is its own: inside of what refreshes a materialized view of
-- its own, PostgreSQL lets nobody become somebody else, leave work for the end of the transaction, or leave
-- settings behind. $1 in the statement stands for `given`, if `as_rows` says what it is: 'pg_catalog.text', or the type
-- of an array of rows. `path` is the search path of what the statement runs; `makes`: what it makes (tutti.changed_beside;
-- 'anything': nobody's code runs); `schema`, if any, is where the object lies: the role may have been given it, and have
-- no right to make things there, which is lent to it meanwhile. The caller must be a superuser.
CREATE OR REPLACE FUNCTION tutti.run_as(role name, statement text, given text, path text, target oid DEFAULT NULL,
    makes text DEFAULT '', schema name DEFAULT NULL, as_rows text DEFAULT '')
RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET client_min_messages = error AS $tutti$
DECLARE
    -- Of its own: transactions that make the same name wait for each other.
    view text := format('tutti.work_%s', replace(gen_random_uuid()::text, '-', ''));
    cursors text := tutti.open_cursors(statement);
    written numeric;
    lends boolean := makes <> '' AND schema IS NOT NULL AND NOT has_schema_privilege(role, schema, 'CREATE');
BEGIN
    IF current_setting('track_counts') <> 'on' THEN
        PERFORM set_config('track_counts', 'on', true);
    END IF;
    written := tutti.written_beside(target);
    -- Not USAGE: that would open to its code what only the schema keeps from it.
    IF lends THEN
        EXECUTE format('GRANT CREATE ON SCHEMA %I TO %I', schema, role);
    END IF;
    EXECUTE format('CREATE MATERIALIZED VIEW %s AS SELECT tutti.run_work() AS is_done WITH NO DATA', view);
    EXECUTE format('ALTER MATERIALIZED VIEW %s OWNER TO %I', view, role);
    PERFORM set_config('tutti.work', statement, true), set_config('tutti.work_rows', given, true),
        set_config('tutti.work_path', path, true), set_config('tutti.work_type', as_rows, true),
        set_config('tutti.work_makes', makes, true);
    IF makes <> '' THEN
        PERFORM tutti.add_warrant(role, makes = 'anything');
    END IF;
    EXECUTE format('REFRESH MATERIALIZED VIEW %s', view);
    PERFORM set_config('tutti.work', '', true), set_config('tutti.work_rows', '', true);
    PERFORM tutti.end_warrants();
    EXECUTE format('DROP MATERIALIZED VIEW %s CASCADE', view);
    IF lends THEN
        EXECUTE format('REVOKE CREATE ON SCHEMA %I FROM %I', schema, role);
    END IF;
    -- They outlive it, and whoever fetches from one runs its query.
    IF tutti.open_cursors(statement) <> cursors THEN
        RAISE insufficient_privilege USING MESSAGE = 'code of a table has opened or closed a cursor of this session';
    END IF;
    IF tutti.written_beside(target) <> written THEN
        RAISE insufficient_privilege USING
            MESSAGE = 'code of a table has written another table while triggers are off',
            DETAIL = 'Rows of the table move, or are stored as node 1 has written them.';
    END IF;
END $tutti$;

-- The statement that runs another as a role, if that is not to run as the gateway's: a superuser's code may. Every
-- statement goes this way that has an expression in it, whatever it names (on another node names may mean something
-- else), or for which PostgreSQL looks at those that a table has.
CREATE OR REPLACE FUNCTION tutti.by_role(role oid, statement text, makes text, schema name) RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $tutti$
BEGIN
    RETURN (SELECT CASE WHEN r.rolsuper THEN statement
        ELSE format('SELECT tutti.run_as(%L, %L, '''', ''pg_catalog, pg_temp'', NULL, %L, %L)', r.rolname, statement,
            makes, schema) END
        FROM pg_roles r WHERE r.oid = role);
END $tutti$;

-- Whether an expression calls the one built-in function that is IMMUTABLE and looks at a table, whose partition key
-- may be code: PostgreSQL records no dependency on it, nor on a table that is a number.
CREATE OR REPLACE FUNCTION tutti.asks_for_partition(expression pg_node_tree) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $tutti$
BEGIN
    RETURN expression::text ~ format(':(?:op|hash|neg)?funcid %s[^0-9]', 'satisfies_hash_partition'::regproc::oid);
END $tutti$;

-- Whether a function, an operator or a type is, or runs, code that somebody may have written who is no superuser; or
-- that a superuser has written in a language in which it may do anything. Base types, operator classes and functions
-- in C are made by superusers, and a function of theirs that belongs to somebody may be replaced; the constructors of
-- a range type, which are PostgreSQL's own, stand for what the type calls.
CREATE OR REPLACE FUNCTION tutti.is_code(class regclass, object oid) RETURNS boolean
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $tutti$
BEGIN
    CASE class
        WHEN 'pg_proc'::regclass THEN
            -- One that is not there is not known to be harmless.
            RETURN NOT EXISTS (SELECT FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang
                JOIN pg_roles r ON r.oid = p.proowner
                WHERE p.oid = object AND CASE WHEN p.oid < 16384 THEN p.oid <> 'satisfies_hash_partition'::regproc
                    ELSE r.rolsuper AND l.lanname IN ('c', 'internal') AND p.prosrc !~ 'range_constructor' END);
        WHEN 'pg_operator'::regclass THEN
            RETURN NOT EXISTS (SELECT FROM pg_operator o JOIN pg_roles r ON r.oid = o.oprowner
                WHERE o.oid = object AND (o.oid < 16384 OR r.rolsuper) AND NOT tutti.is_code('pg_proc', o.oprcode));
        WHEN 'pg_type'::regclass THEN
            RETURN object >= 16384 AND NOT EXISTS (SELECT FROM pg_type t
                LEFT JOIN pg_type e ON e.oid = t.typelem AND t.typcategory = 'A'
                WHERE t.oid = object AND coalesce(e.typtype, t.typtype) IN ('e', 'b'));
        ELSE
            RETURN false;
    END CASE;
END $tutti$;

-- Whether making this object may run code of users (others may be changing that; where its owner can run what makes
-- it, he does so without being asked): its expressions name functions or operators of theirs,
-- or have constants of their types, whose input may run checks.
DROP FUNCTION IF EXISTS tutti.names_code(regclass, oid, boolean);
CREATE OR REPLACE FUNCTION tutti.names_code(class regclass, object oid) RETURNS boolean
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $tutti$
BEGIN
    RETURN EXISTS (SELECT FROM pg_depend d
        WHERE d.classid = class AND d.objid = object AND d.refobjid >= 16384
            -- Types of columns are not constants.
            AND (class <> 'pg_class'::regclass OR d.objsubid = 0)
            AND tutti.is_code(d.refclassid, d.refobjid))
        OR CASE class
            WHEN 'pg_attrdef'::regclass THEN EXISTS (SELECT FROM pg_attrdef x
                WHERE x.oid = object AND tutti.asks_for_partition(x.adbin))
            WHEN 'pg_constraint'::regclass THEN EXISTS (SELECT FROM pg_constraint x
                WHERE x.oid = object AND tutti.asks_for_partition(x.conbin))
            WHEN 'pg_statistic_ext'::regclass THEN EXISTS (SELECT FROM pg_statistic_ext x
                WHERE x.oid = object AND tutti.asks_for_partition(x.stxexprs))
            WHEN 'pg_class'::regclass THEN EXISTS (SELECT FROM pg_index x WHERE x.indexrelid = object
                    AND (tutti.asks_for_partition(x.indexprs) OR tutti.asks_for_partition(x.indpred)))
                OR EXISTS (SELECT FROM pg_partitioned_table x
                    WHERE x.partrelid = object AND tutti.asks_for_partition(x.partexprs))
            ELSE false END;
END $tutti$;

-- Whether checks of a table name code.
CREATE OR REPLACE FUNCTION tutti.checks_name_code(relation oid) RETURNS boolean
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $tutti$
BEGIN
    RETURN EXISTS (SELECT FROM pg_constraint k WHERE k.conrelid = relation AND k.contype = 'c'
        AND tutti.names_code('pg_constraint', k.oid));
END $tutti$;

-- Whether planning a query of a table, of another of its family, or of one that a foreign key ties to these, computes
-- code: of checks, generated columns, indexes, statistics and keys of partitions. `but_of`: of others than this role and
-- superusers.
DROP FUNCTION IF EXISTS tutti.plans_code(oid);
CREATE OR REPLACE FUNCTION tutti.plans_code(relation oid, but_of oid DEFAULT NULL) RETURNS boolean
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $tutti$
DECLARE
    near oid[];
BEGIN
    WITH RECURSIVE up AS (
        SELECT plans_code.relation AS table_oid
        UNION SELECT h.inhparent FROM up JOIN pg_inherits h ON h.inhrelid = up.table_oid
    ), family AS (
        SELECT up.table_oid FROM up
        UNION SELECT h.inhrelid FROM family f JOIN pg_inherits h ON h.inhparent = f.table_oid
    ), tied AS (
        SELECT f.table_oid FROM family f
        UNION SELECT k.confrelid FROM family f JOIN pg_constraint k ON k.contype = 'f' AND k.conrelid = f.table_oid
        UNION SELECT k.conrelid FROM family f JOIN pg_constraint k ON k.contype = 'f' AND k.confrelid = f.table_oid
    ), below AS (
        SELECT t.table_oid FROM tied t
        UNION SELECT h.inhrelid FROM below b JOIN pg_inherits h ON h.inhparent = b.table_oid
    ) SELECT array_agg(b.table_oid) INTO near FROM below b JOIN pg_class c ON c.oid = b.table_oid
        JOIN pg_roles r ON r.oid = c.relowner
        WHERE but_of IS NULL OR c.relowner <> but_of AND NOT r.rolsuper;
    RETURN EXISTS (SELECT FROM unnest(near) AS n (table_oid)
            WHERE tutti.checks_name_code(n.table_oid) OR tutti.names_code('pg_class', n.table_oid))
        OR EXISTS (SELECT FROM pg_attribute a JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
            WHERE a.attrelid = ANY (near) AND a.attgenerated <> '' AND tutti.names_code('pg_attrdef', d.oid))
        OR EXISTS (SELECT FROM pg_index i WHERE i.indrelid = ANY (near) AND tutti.names_code('pg_class', i.indexrelid))
        OR EXISTS (SELECT FROM pg_statistic_ext s WHERE s.stxrelid = ANY (near)
            AND tutti.names_code('pg_statistic_ext', s.oid));
END $tutti$;

-- What would be planned as one role, and has code of another's.
CREATE OR REPLACE FUNCTION tutti.refuse_foreign_code(what text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $tutti$
BEGIN
    RAISE feature_not_supported USING
        MESSAGE = format('%s cannot be brought to other nodes', what),
        DETAIL = 'It ties tables of several owners, and one that is not the owner of this table has code (in a check, an index, statistics, a partition key) that making it would run.',
        HINT = 'Let both tables belong to one role, or drop what has the code, before the tables are spread.';
END $tutti$;

-- The same, asked on the node that makes it: tables there may have more than node 1's. `owner`: whose code may run,
-- for it is made as this role; NULL: nobody's.
CREATE OR REPLACE FUNCTION tutti.refuse_planned(what text, owner name, relations text[]) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $tutti$
BEGIN
    IF EXISTS (SELECT FROM unnest(relations) AS r (relation)
        WHERE tutti.plans_code(to_regclass(r.relation)::oid, (SELECT o.oid FROM pg_roles o WHERE o.rolname = owner))) THEN
        PERFORM tutti.refuse_foreign_code(what);
    END IF;
END $tutti$;

-- Takes from everybody what default privileges have given on a new object; `wanted`: it is to be as without any.
CREATE OR REPLACE FUNCTION tutti.without_defaults(what text, name text, wanted boolean) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $tutti$
DECLARE
    has aclitem[];
    usual aclitem[];
    statement text;
BEGIN
    SELECT o.acl, acldefault(o.kind, o.owner) INTO has, usual FROM (
        SELECT c.relacl, CASE c.relkind WHEN 'S' THEN 's' ELSE 'r' END::"char", c.relowner FROM pg_class c
            WHERE what IN ('TABLE', 'SEQUENCE') AND c.oid = to_regclass(name)
        UNION ALL SELECT t.typacl, 'T', t.typowner FROM pg_type t WHERE what = 'TYPE' AND t.oid = to_regtype(name)
        UNION ALL SELECT n.nspacl, 'n', n.nspowner FROM pg_namespace n
            WHERE what = 'SCHEMA' AND n.oid = to_regnamespace(name)
        UNION ALL SELECT p.proacl, 'f', p.proowner FROM pg_proc p
            WHERE what IN ('FUNCTION', 'PROCEDURE') AND p.oid = to_regprocedure(name)) AS o (acl, kind, owner);
    IF has IS NULL THEN
        RETURN;
    END IF;
    FOR statement IN
        SELECT DISTINCT format('REVOKE ALL ON %s %s FROM %s CASCADE', what, name,
            CASE g.grantee WHEN 0 THEN 'PUBLIC' ELSE g.grantee::regrole::text END) FROM aclexplode(has) g
    LOOP
        EXECUTE statement;
    END LOOP;
    FOR statement IN
        SELECT format('GRANT %s ON %s %s TO %s', g.privilege_type, what, name,
            CASE g.grantee WHEN 0 THEN 'PUBLIC' ELSE g.grantee::regrole::text END) FROM aclexplode(usual) g WHERE wanted
    LOOP
        EXECUTE statement;
    END LOOP;
END $tutti$;

-- The statements that give what `acl` says, each as who has given it: REVOKE … CASCADE follows that. Who gave on
-- what he was given comes behind those who gave it to him.
CREATE OR REPLACE FUNCTION tutti.gifts(what text, name text, owner oid, acl aclitem[], of_column name DEFAULT NULL)
RETURNS text[]
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $tutti$
#variable_conflict use_column
BEGIN
    RETURN (
    WITH RECURSIVE given AS (SELECT * FROM aclexplode(acl)),
    giver (role, depth) AS (
        SELECT owner, 0
        UNION SELECT g.grantee, r.depth + 1 FROM giver r JOIN given g ON g.grantor = r.role AND g.is_grantable
            WHERE r.depth < 20
    )
    SELECT coalesce(array_agg(CASE WHEN g.grantor = owner THEN m.make ELSE tutti.by_role(g.grantor, m.make, 'anything', NULL) END
        ORDER BY (SELECT min(r.depth) FROM giver r WHERE r.role = g.grantor), m.make), '{}')
    FROM given g, LATERAL (SELECT format('GRANT %s%s ON %s %s TO %s%s', g.privilege_type,
        ' (' || quote_ident(of_column) || ')', what, name,
        CASE g.grantee WHEN 0 THEN 'PUBLIC' ELSE g.grantee::regrole::text END,
        CASE WHEN g.is_grantable THEN ' WITH GRANT OPTION' ELSE '' END)) AS m (make));
END $tutti$;

DROP FUNCTION IF EXISTS tutti.grants(text, text, oid, aclitem[]);
CREATE OR REPLACE FUNCTION tutti.rights(what text, name text, owner oid, acl aclitem[])
RETURNS text[] LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $tutti$
#variable_conflict use_column
BEGIN
    RETURN (
    SELECT ARRAY[format('SELECT tutti.without_defaults(%L, %L, %L)', what, name, acl IS NULL)]
        || CASE WHEN acl IS NULL THEN '{}' ELSE
        ARRAY[format('REVOKE ALL ON %s %s FROM PUBLIC', what, name),
              format('REVOKE ALL ON %s %s FROM %s', what, name, owner::regrole)]
        || tutti.gifts(what, name, owner, acl) END);
END $tutti$;

CREATE OR REPLACE FUNCTION tutti.type_definition(type oid) RETURNS text[]
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $tutti$
DECLARE
    t pg_type;
    name text;
    make text[];
BEGIN
    SELECT * INTO t FROM pg_type WHERE oid = type;
    SELECT format('%I.%I', n.nspname, t.typname) INTO name FROM pg_namespace n WHERE n.oid = t.typnamespace;
    CASE t.typtype
    WHEN 'e' THEN
        make := ARRAY[format('CREATE TYPE %s AS ENUM (%s)', name,
            (SELECT string_agg(quote_literal(e.enumlabel), ', ' ORDER BY e.enumsortorder)
             FROM pg_enum e WHERE e.enumtypid = type))];
    WHEN 'c' THEN
        make := ARRAY[format('CREATE TYPE %s AS (%s)', name,
            (SELECT string_agg(format('%I %s%s', a.attname, format_type(a.atttypid, a.atttypmod),
                    tutti.collation_clause(a.attcollation, a.atttypid)), ', ' ORDER BY a.attnum)
             FROM pg_attribute a WHERE a.attrelid = t.typrelid AND a.attnum > 0 AND NOT a.attisdropped))];
    WHEN 'd' THEN
        make := ARRAY[format('CREATE DOMAIN %s AS %s%s%s%s', name, format_type(t.typbasetype, t.typtypmod),
            tutti.collation_clause(t.typcollation, t.typbasetype),
            coalesce(' DEFAULT ' || pg_get_expr(t.typdefaultbin, 0), ''),
            CASE WHEN t.typnotnull THEN ' NOT NULL' ELSE '' END)
            || coalesce((SELECT string_agg(format(' CONSTRAINT %I %s', k.conname, pg_get_constraintdef(k.oid)), ''
                ORDER BY k.oid) FROM pg_constraint k
                WHERE k.contypid = type AND k.contype = 'c' AND k.convalidated), '')]
            || coalesce((SELECT array_agg(format('ALTER DOMAIN %s ADD CONSTRAINT %I %s', name,
                k.conname, pg_get_constraintdef(k.oid)) ORDER BY k.oid)
                FROM pg_constraint k WHERE k.contypid = type AND k.contype = 'c' AND NOT k.convalidated), '{}');
        make := ARRAY(SELECT tutti.by_role(t.typowner, m.statement, 'domain', n.nspname)
            FROM unnest(make) WITH ORDINALITY AS m (statement, position), pg_namespace n
            WHERE n.oid = t.typnamespace ORDER BY m.position);
    WHEN 'r' THEN
        make := ARRAY[(SELECT format('CREATE TYPE %s AS RANGE (%s)', name, concat_ws(', ',
            'SUBTYPE = ' || format_type(r.rngsubtype, NULL),
            (SELECT format('SUBTYPE_OPCLASS = %I.%I', n.nspname, o.opcname)
             FROM pg_opclass o JOIN pg_namespace n ON n.oid = o.opcnamespace WHERE o.oid = r.rngsubopc),
            (SELECT format('COLLATION = %I.%I', n.nspname, c.collname)
             FROM pg_collation c JOIN pg_namespace n ON n.oid = c.collnamespace
             WHERE c.oid = r.rngcollation),
            (SELECT 'CANONICAL = ' || p.oid::regproc FROM pg_proc p WHERE p.oid = r.rngcanonical),
            (SELECT 'SUBTYPE_DIFF = ' || p.oid::regproc FROM pg_proc p WHERE p.oid = r.rngsubdiff),
            (SELECT format('MULTIRANGE_TYPE_NAME = %I.%I', mn.nspname, m.typname)
             FROM pg_type m JOIN pg_namespace mn ON mn.oid = m.typnamespace WHERE m.oid = r.rngmultitypid)))
            FROM pg_range r WHERE r.rngtypid = type)];
    ELSE
        RETURN NULL;
    END CASE;
    RETURN make
        || format('ALTER %s %s OWNER TO %s', CASE t.typtype WHEN 'd' THEN 'DOMAIN' ELSE 'TYPE' END,
            name, t.typowner::regrole)
        -- Some versions give it away with its range.
        || ARRAY(SELECT format('DO %L', format(
                'BEGIN IF (SELECT t.typowner FROM pg_catalog.pg_type t WHERE t.oid OPERATOR(pg_catalog.=) %1$L::pg_catalog.regtype)
                    OPERATOR(pg_catalog.<>) %2$L::pg_catalog.regrole THEN ALTER TYPE %1$s OWNER TO %2$s; END IF; END',
                format('%I.%I', n.nspname, m.typname), m.typowner::regrole))
            FROM pg_range r JOIN pg_type m ON m.oid = r.rngmultitypid JOIN pg_namespace n ON n.oid = m.typnamespace
            WHERE r.rngtypid = type)
        || tutti.rights('TYPE', name, t.typowner, t.typacl);
END $tutti$;

-- The operators and functions of an operator class, or those of a family that belong to no class of it.
CREATE OR REPLACE FUNCTION tutti.family_members(class regclass, object oid) RETURNS text[]
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $tutti$
    SELECT ARRAY(
        SELECT format('OPERATOR %s %s%s', o.amopstrategy, o.amopopr::regoperator,
            (SELECT format(' FOR ORDER BY %I.%I', n.nspname, s.opfname) FROM pg_opfamily s
                JOIN pg_namespace n ON n.oid = s.opfnamespace WHERE s.oid = o.amopsortfamily))
        FROM pg_depend d JOIN pg_amop o ON o.oid = d.objid
        WHERE d.classid = 'pg_amop'::regclass AND d.refclassid = class AND d.refobjid = object AND d.deptype IN ('a', 'i')
        ORDER BY o.oid)
    || ARRAY(
        SELECT format('FUNCTION %s (%s, %s) %s', p.amprocnum, format_type(p.amproclefttype, NULL),
            format_type(p.amprocrighttype, NULL), p.amproc::regprocedure)
        FROM pg_depend d JOIN pg_amproc p ON p.oid = d.objid
        WHERE d.classid = 'pg_amproc'::regclass AND d.refclassid = class AND d.refobjid = object AND d.deptype IN ('a', 'i')
        ORDER BY p.oid)
$tutti$;

-- How an object that is no relation is made, and whose it is; NULL: it cannot be made elsewhere.
CREATE OR REPLACE FUNCTION tutti.object_definition(class regclass, object oid) RETURNS text[]
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $tutti$
DECLARE
    make text[];
BEGIN
    CASE class
    WHEN 'pg_type'::regclass THEN
        make := tutti.type_definition(object);
    WHEN 'pg_proc'::regclass THEN
        SELECT
                CASE WHEN p.prokind IN ('f', 'p', 'w') THEN
                    ARRAY[CASE WHEN p.proargdefaults IS NOT NULL OR p.prosqlbody IS NOT NULL
                        THEN tutti.by_role(p.proowner, pg_get_functiondef(p.oid), 'function', n.nspname)
                        ELSE pg_get_functiondef(p.oid) END]
                    -- Its initial value is read when it is made, which may run the checks of a domain.
                    WHEN p.prokind = 'a' AND a.aggkind = 'n' AND (a.agginitval IS NULL
                        OR a.aggtranstype < 16384) THEN
                    ARRAY[format('CREATE AGGREGATE %s (SFUNC = %s, STYPE = %s%s%s%s%s, PARALLEL = %s)',
                        p.oid::regprocedure, a.aggtransfn::regproc, format_type(a.aggtranstype, NULL),
                        CASE WHEN a.aggfinalfn <> 0 THEN ', FINALFUNC = ' || a.aggfinalfn::regproc ELSE '' END,
                        CASE WHEN a.aggfinalextra THEN ', FINALFUNC_EXTRA' ELSE '' END,
                        CASE WHEN a.aggcombinefn <> 0 THEN ', COMBINEFUNC = ' || a.aggcombinefn::regproc ELSE '' END,
                        coalesce(', INITCOND = ' || quote_literal(a.agginitval), ''),
                        CASE p.proparallel WHEN 's' THEN 'SAFE' WHEN 'r' THEN 'RESTRICTED' ELSE 'UNSAFE' END)]
                END
                || format('ALTER %s %s OWNER TO %s',
                    CASE p.prokind WHEN 'p' THEN 'PROCEDURE' WHEN 'a' THEN 'AGGREGATE' ELSE 'FUNCTION' END,
                    p.oid::regprocedure, p.proowner::regrole)
                || tutti.rights(CASE p.prokind WHEN 'p' THEN 'PROCEDURE' ELSE 'FUNCTION' END,
                    p.oid::regprocedure::text, p.proowner, p.proacl)
        INTO make FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
        LEFT JOIN pg_aggregate a ON a.aggfnoid = p.oid WHERE p.oid = object;
    WHEN 'pg_operator'::regclass THEN
        SELECT
                ARRAY[format('CREATE OPERATOR %I.%s (FUNCTION = %s%s%s%s%s%s%s)', n.nspname, o.oprname,
                    o.oprcode::regproc,
                    CASE WHEN o.oprleft <> 0 THEN ', LEFTARG = ' || format_type(o.oprleft, NULL) ELSE '' END,
                    CASE WHEN o.oprright <> 0 THEN ', RIGHTARG = ' || format_type(o.oprright, NULL) ELSE '' END,
                    CASE WHEN o.oprrest <> 0 THEN ', RESTRICT = ' || o.oprrest::regproc ELSE '' END,
                    CASE WHEN o.oprjoin <> 0 THEN ', JOIN = ' || o.oprjoin::regproc ELSE '' END,
                    CASE WHEN o.oprcanhash THEN ', HASHES' ELSE '' END,
                    CASE WHEN o.oprcanmerge THEN ', MERGES' ELSE '' END
                        || coalesce((SELECT format(', COMMUTATOR = OPERATOR(%I.%s)', cn.nspname, c.oprname)
                            FROM pg_operator c JOIN pg_namespace cn ON cn.oid = c.oprnamespace WHERE c.oid = o.oprcom), '')
                        || coalesce((SELECT format(', NEGATOR = OPERATOR(%I.%s)', cn.nspname, c.oprname)
                            FROM pg_operator c JOIN pg_namespace cn ON cn.oid = c.oprnamespace WHERE c.oid = o.oprnegate), '')),
                    format('ALTER OPERATOR %s OWNER TO %s', object::regoperator, o.oprowner::regrole)]
        INTO make FROM pg_operator o JOIN pg_namespace n ON n.oid = o.oprnamespace
        WHERE o.oid = object AND o.oprcode <> 0;
    WHEN 'pg_collation'::regclass THEN
        SELECT
                ARRAY[format('CREATE COLLATION %I.%I (%s)', n.nspname, c.collname, concat_ws(', ',
                    CASE c.collprovider WHEN 'i' THEN 'PROVIDER = icu' ELSE 'PROVIDER = libc' END,
                    'LOCALE = ' || quote_literal(coalesce(to_jsonb(c) ->> 'colliculocale',
                        to_jsonb(c) ->> 'colllocale')),
                    'LC_COLLATE = ' || quote_literal(c.collcollate), 'LC_CTYPE = ' || quote_literal(c.collctype),
                    CASE WHEN c.collisdeterministic THEN NULL ELSE 'DETERMINISTIC = false' END)),
                    format('ALTER COLLATION %I.%I OWNER TO %s', n.nspname, c.collname, c.collowner::regrole)]
        INTO make FROM pg_collation c JOIN pg_namespace n ON n.oid = c.collnamespace WHERE c.oid = object;
    WHEN 'pg_cast'::regclass THEN
        SELECT
                ARRAY[format('CREATE CAST (%s AS %s) %s%s', format_type(c.castsource, NULL),
                    format_type(c.casttarget, NULL),
                    CASE c.castmethod WHEN 'f' THEN 'WITH FUNCTION ' || c.castfunc::regprocedure
                        WHEN 'i' THEN 'WITH INOUT' ELSE 'WITHOUT FUNCTION' END,
                    CASE c.castcontext WHEN 'i' THEN ' AS IMPLICIT' WHEN 'a' THEN ' AS ASSIGNMENT' ELSE '' END)]
        INTO make FROM pg_cast c WHERE c.oid = object;
    WHEN 'pg_ts_parser'::regclass THEN
        SELECT ARRAY[format('CREATE TEXT SEARCH PARSER %I.%I (START = %s, GETTOKEN = %s, END = %s, LEXTYPES = %s%s)',
                n.nspname, p.prsname, p.prsstart, p.prstoken, p.prsend, p.prslextype,
                CASE WHEN p.prsheadline <> 0 THEN ', HEADLINE = ' || p.prsheadline ELSE '' END)]
        INTO make FROM pg_ts_parser p JOIN pg_namespace n ON n.oid = p.prsnamespace WHERE p.oid = object;
    WHEN 'pg_ts_template'::regclass THEN
        SELECT ARRAY[format('CREATE TEXT SEARCH TEMPLATE %I.%I (LEXIZE = %s%s)', n.nspname, t.tmplname, t.tmpllexize,
                CASE WHEN t.tmplinit <> 0 THEN ', INIT = ' || t.tmplinit ELSE '' END)]
        INTO make FROM pg_ts_template t JOIN pg_namespace n ON n.oid = t.tmplnamespace WHERE t.oid = object;
    WHEN 'pg_ts_dict'::regclass THEN
        SELECT ARRAY[format('CREATE TEXT SEARCH DICTIONARY %I.%I (TEMPLATE = %I.%I%s)', n.nspname, d.dictname,
                tn.nspname, t.tmplname, ', ' || d.dictinitoption),
            format('ALTER TEXT SEARCH DICTIONARY %I.%I OWNER TO %s', n.nspname, d.dictname, d.dictowner::regrole)]
        INTO make FROM pg_ts_dict d JOIN pg_namespace n ON n.oid = d.dictnamespace
        JOIN pg_ts_template t ON t.oid = d.dicttemplate JOIN pg_namespace tn ON tn.oid = t.tmplnamespace
        WHERE d.oid = object;
    WHEN 'pg_ts_config'::regclass THEN
        SELECT ARRAY[format('CREATE TEXT SEARCH CONFIGURATION %s (PARSER = %I.%I)', o.name, pn.nspname, p.prsname)]
            || ARRAY(SELECT format('ALTER TEXT SEARCH CONFIGURATION %s ADD MAPPING FOR %I WITH %s', o.name, k.alias,
                    string_agg(format('%I.%I', dn.nspname, d.dictname), ', ' ORDER BY m.mapseqno))
                FROM pg_ts_config_map m JOIN ts_token_type(c.cfgparser) k ON k.tokid = m.maptokentype
                JOIN pg_ts_dict d ON d.oid = m.mapdict JOIN pg_namespace dn ON dn.oid = d.dictnamespace
                WHERE m.mapcfg = c.oid GROUP BY k.tokid, k.alias ORDER BY k.tokid)
            || format('ALTER TEXT SEARCH CONFIGURATION %s OWNER TO %s', o.name, c.cfgowner::regrole)
        INTO make FROM pg_ts_config c JOIN pg_namespace n ON n.oid = c.cfgnamespace
        JOIN pg_ts_parser p ON p.oid = c.cfgparser JOIN pg_namespace pn ON pn.oid = p.prsnamespace,
        LATERAL (SELECT format('%I.%I', n.nspname, c.cfgname) AS name) AS o WHERE c.oid = object;
    WHEN 'pg_opfamily'::regclass THEN
        SELECT ARRAY[format('CREATE OPERATOR FAMILY %s', o.name)]
            || (format('ALTER OPERATOR FAMILY %s ADD ', o.name)
                || nullif(array_to_string(tutti.family_members('pg_opfamily', object), ', '), ''))
            || format('ALTER OPERATOR FAMILY %s OWNER TO %s', o.name, f.opfowner::regrole)
        INTO make FROM pg_opfamily f JOIN pg_namespace n ON n.oid = f.opfnamespace JOIN pg_am a ON a.oid = f.opfmethod,
        LATERAL (SELECT format('%I.%I USING %I', n.nspname, f.opfname, a.amname) AS name) AS o WHERE f.oid = object;
        make := array_remove(make, NULL);
    WHEN 'pg_opclass'::regclass THEN
        SELECT ARRAY[format('CREATE OPERATOR CLASS %I.%I %sFOR TYPE %s USING %I FAMILY %I.%I AS %s', n.nspname, c.opcname,
                CASE WHEN c.opcdefault THEN 'DEFAULT ' ELSE '' END, format_type(c.opcintype, NULL), a.amname,
                fn.nspname, f.opfname, array_to_string(
                    ARRAY['STORAGE ' || format_type(coalesce(nullif(c.opckeytype, 0), c.opcintype), NULL)]
                        || tutti.family_members('pg_opclass', object), ', ')),
            format('ALTER OPERATOR CLASS %I.%I USING %I OWNER TO %s', n.nspname, c.opcname, a.amname, c.opcowner::regrole)]
        INTO make FROM pg_opclass c JOIN pg_namespace n ON n.oid = c.opcnamespace
        JOIN pg_opfamily f ON f.oid = c.opcfamily JOIN pg_namespace fn ON fn.oid = f.opfnamespace
        JOIN pg_am a ON a.oid = c.opcmethod WHERE c.oid = object;
    END CASE;
    RETURN make;
END $tutti$;

-- What an object is and whose: what must be the same where a node has it already. Expressions are left out: another
-- node's are the text of node 1's, read and written once more, which is not always the same text.
CREATE OR REPLACE FUNCTION tutti.essence(class regclass, object oid) RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp SET quote_all_identifiers = off AS $tutti$
DECLARE
    essence text;
BEGIN
    CASE class
    WHEN 'pg_class'::regclass THEN
        -- A table or sequence that is the cluster's is here as often as its owner is about to change.
        SELECT concat_ws(' ', c.relkind, CASE c.relkind WHEN 'v' THEN c.relowner::regrole END) INTO essence
        FROM pg_class c WHERE c.oid = object;
    WHEN 'pg_type'::regclass THEN
        SELECT concat_ws(' ', t.typtype, t.typowner::regrole, CASE t.typtype
                WHEN 'd' THEN concat_ws(' ', format_type(t.typbasetype, t.typtypmod), t.typnotnull, (
                    SELECT string_agg(quote_ident(k.conname), ' ' ORDER BY k.conname) FROM pg_constraint k
                    WHERE k.contypid = t.oid))
                ELSE (tutti.object_definition(class, object))[1] END)
            INTO essence FROM pg_type t WHERE t.oid = object;
    WHEN 'pg_proc'::regclass THEN
        SELECT CASE p.prokind WHEN 'a' THEN array_to_string((tutti.object_definition(class, object))[1:2], ' ')
            ELSE concat_ws(' ', p.prokind, p.proowner::regrole, p.provolatile, p.prosecdef, p.proisstrict, p.proretset,
                format_type(p.prorettype, NULL), p.pronargdefaults, p.prosqlbody IS NULL, l.lanname,
                p.proconfig, p.prosrc) END
            INTO essence FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang WHERE p.oid = object;
    WHEN 'pg_ts_parser'::regclass, 'pg_ts_template'::regclass, 'pg_ts_dict'::regclass, 'pg_ts_config'::regclass,
        'pg_opfamily'::regclass, 'pg_opclass'::regclass THEN
        essence := array_to_string(tutti.object_definition(class, object), ' ');
    WHEN 'pg_operator'::regclass, 'pg_collation'::regclass, 'pg_cast'::regclass THEN
        -- Nodes may have an operator's partners from before they were told of them.
        essence := regexp_replace(array_to_string((tutti.object_definition(class, object))[1:2], ' '),
            ', (COMMUTATOR|NEGATOR) = OPERATOR\([^)]*\)', '', 'g');
    ELSE
        NULL;
    END CASE;
    RETURN essence;
END $tutti$;

-- Something that the definitions name is here already: fails if it is not what node 1 has. Nobody would be told
-- otherwise, and other roles would run what stands there.
CREATE OR REPLACE FUNCTION tutti.refuse_another(item jsonb) RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $tutti$
BEGIN
    IF item ->> 'essence' IS DISTINCT FROM (SELECT tutti.essence(a.classid, a.objid)
        FROM pg_get_object_address(item ->> 'kind', ARRAY(SELECT jsonb_array_elements_text(item -> 'names')),
            ARRAY(SELECT jsonb_array_elements_text(item -> 'arguments'))) a) THEN
        RAISE duplicate_object USING
            MESSAGE = format('%s is there already, and is not what it is on node n1', item ->> 'what'),
            DETAIL = 'Code that ran on this node, or somebody past the gateway, has made it.',
            HINT = 'Drop it on this node, or change it there to what it is on node n1.';
    END IF;
END $tutti$;

CREATE OR REPLACE FUNCTION tutti.collation_clause(wanted oid, of_type oid) RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $tutti$
#variable_conflict use_column
BEGIN
    RETURN (
    SELECT coalesce((SELECT format(' COLLATE %I.%I', n.nspname, c.collname)
        FROM pg_collation c JOIN pg_namespace n ON n.oid = c.collnamespace
        JOIN pg_type t ON t.oid = of_type
        WHERE c.oid = wanted AND c.oid <> t.typcollation), ''));
END $tutti$;

CREATE OR REPLACE FUNCTION tutti.sequence_options(sequence oid) RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $tutti$
#variable_conflict use_column
BEGIN
    -- Never CYCLE: on other nodes they are at their end, and whoever draws there is to be told.
    RETURN (
    SELECT format('START WITH %s INCREMENT BY %s MINVALUE %s MAXVALUE %s CACHE %s NO CYCLE',
        s.seqstart, s.seqincrement, s.seqmin, s.seqmax, s.seqcache)
    FROM pg_sequence s WHERE s.seqrelid = sequence);
END $tutti$;

-- What is said about objects of one kind, but for columns.
CREATE OR REPLACE FUNCTION tutti.comments(catalog regclass, objects oid[]) RETURNS text[]
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $tutti$
    SELECT coalesce(array_agg(format('COMMENT ON %s %s IS %L',
        CASE i.type WHEN 'table constraint' THEN 'CONSTRAINT' WHEN 'domain constraint' THEN 'CONSTRAINT'
            WHEN 'statistics object' THEN 'STATISTICS' WHEN 'composite type' THEN 'TYPE'
            ELSE upper(i.type) END,
        CASE i.type WHEN 'domain constraint' THEN (
            SELECT format('%I ON DOMAIN %s', k.conname, k.contypid::regtype)
            FROM pg_constraint k WHERE k.oid = d.objoid) ELSE i.identity END,
        d.description) ORDER BY d.objoid), '{}')
    FROM pg_description d, pg_identify_object(d.classoid, d.objoid, 0) i
    WHERE d.classoid = catalog AND d.objoid = ANY (objects) AND d.objsubid = 0
$tutti$;

-- What pg_dump says of columns behind CREATE TABLE: how values are stored and counted.
CREATE OR REPLACE FUNCTION tutti.column_settings(relation oid, name text) RETURNS text[]
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $tutti$
#variable_conflict use_column
BEGIN
    RETURN (
    SELECT coalesce(array_agg(format('ALTER TABLE ONLY %s ALTER COLUMN %I SET %s', name, a.attname, s.setting)
        ORDER BY a.attnum, s.setting), '{}')
    FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid,
    LATERAL (VALUES
        (CASE WHEN a.attstorage <> t.typstorage THEN 'STORAGE ' || CASE a.attstorage
            WHEN 'p' THEN 'PLAIN' WHEN 'e' THEN 'EXTERNAL' WHEN 'm' THEN 'MAIN' ELSE 'EXTENDED' END END),
        ('COMPRESSION ' || CASE a.attcompression WHEN 'p' THEN 'pglz' WHEN 'l' THEN 'lz4' END),
        (CASE WHEN a.attstattarget >= 0 THEN 'STATISTICS ' || a.attstattarget END),
        ('(' || (SELECT string_agg(format('%s = %L', o.option_name, o.option_value), ', ')
            FROM pg_options_to_table(a.attoptions) o) || ')')
    ) AS s (setting)
    WHERE a.attrelid = relation AND a.attnum > 0 AND NOT a.attisdropped AND s.setting IS NOT NULL);
END $tutti$;

-- The same of the columns of a table's indexes, and of its statistics objects.
CREATE OR REPLACE FUNCTION tutti.statistics_settings(relation oid) RETURNS text[]
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $tutti$
    SELECT coalesce(array_agg(s.make ORDER BY s.make), '{}') FROM (
        SELECT format('ALTER INDEX %s ALTER COLUMN %s SET STATISTICS %s', i.indexrelid::regclass,
            a.attnum, a.attstattarget)
        FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indexrelid AND a.attstattarget >= 0
        WHERE i.indrelid = relation AND i.indislive AND i.indkey[a.attnum - 1] = 0
        UNION ALL SELECT format('ALTER STATISTICS %I.%I SET STATISTICS %s', n.nspname, s.stxname,
            s.stxstattarget)
        FROM pg_statistic_ext s JOIN pg_namespace n ON n.oid = s.stxnamespace
        WHERE s.stxrelid = relation AND s.stxstattarget >= 0) AS s (make)
$tutti$;

-- The table alone, its columns and whose it is.
CREATE OR REPLACE FUNCTION tutti.table_definition(relation oid) RETURNS text[]
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $tutti$
DECLARE
    c pg_class;
    name text;
    columns text;
    parents text;
    make text;
BEGIN
    SELECT * INTO c FROM pg_class WHERE oid = relation;
    SELECT format('%I.%I', n.nspname, c.relname) INTO name FROM pg_namespace n WHERE n.oid = c.relnamespace;
    IF NOT c.relispartition THEN
        SELECT string_agg(format('%I.%I', n.nspname, p.relname), ', ' ORDER BY h.inhseqno) INTO parents
        FROM pg_inherits h JOIN pg_class p ON p.oid = h.inhparent
        JOIN pg_namespace n ON n.oid = p.relnamespace WHERE h.inhrelid = relation;
    END IF;
    SELECT string_agg(format('%I %s%s%s%s', a.attname, format_type(a.atttypid, a.atttypmod),
        tutti.collation_clause(a.attcollation, a.atttypid),
        CASE WHEN a.attidentity <> '' THEN format(' GENERATED %s AS IDENTITY (%s)',
                CASE a.attidentity WHEN 'a' THEN 'ALWAYS' ELSE 'BY DEFAULT' END,
                (SELECT format('SEQUENCE NAME %I.%I %s', sn.nspname, s.relname, tutti.sequence_options(s.oid))
                 FROM pg_depend d JOIN pg_class s ON s.oid = d.objid AND s.relkind = 'S'
                 JOIN pg_namespace sn ON sn.oid = s.relnamespace
                 WHERE d.classid = 'pg_class'::regclass AND d.refclassid = 'pg_class'::regclass
                    AND d.refobjid = relation AND d.refobjsubid = a.attnum AND d.deptype = 'i'))
             WHEN a.attgenerated <> '' THEN
                format(' GENERATED ALWAYS AS (%s) STORED', pg_get_expr(d.adbin, d.adrelid))
             ELSE '' END,
        CASE WHEN a.attnotnull THEN ' NOT NULL' ELSE '' END), ', ' ORDER BY a.attnum) INTO columns
    FROM pg_attribute a LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
    WHERE a.attrelid = relation AND a.attnum > 0 AND NOT a.attisdropped
        AND (a.attislocal OR parents IS NULL);
    make := format('CREATE %sTABLE %s (%s)%s%s%s%s',
            CASE c.relpersistence WHEN 'u' THEN 'UNLOGGED ' ELSE '' END, name, columns,
            ' INHERITS (' || parents || ')',
            CASE c.relkind WHEN 'p' THEN ' PARTITION BY ' || pg_get_partkeydef(relation) ELSE '' END,
            (SELECT format(' USING %I', m.amname) FROM pg_am m WHERE m.oid = c.relam AND m.amname <> 'heap'),
            ' WITH (' || (SELECT string_agg(format('%s%s = %L', o.of, o.option_name, o.option_value), ', ')
                FROM (SELECT '' AS of, * FROM pg_options_to_table(c.reloptions)
                    UNION ALL SELECT 'toast.', o.* FROM pg_class t, pg_options_to_table(t.reloptions) o
                    WHERE t.oid = c.reltoastrelid) o) || ')');
    -- What is constant in generated columns and in the key of partitions is computed.
    IF EXISTS (SELECT FROM pg_partitioned_table p WHERE p.partrelid = relation AND p.partexprs IS NOT NULL)
        OR EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = relation AND a.attgenerated <> '') THEN
        SELECT tutti.by_role(c.relowner, make, 'table', n.nspname) INTO make FROM pg_namespace n WHERE n.oid = c.relnamespace;
    END IF;
    RETURN ARRAY[make, format('ALTER TABLE %s OWNER TO %s', name, c.relowner::regrole)]
        || tutti.column_settings(relation, name);
END $tutti$;

-- What a table's or view's columns have but their types, and what is said about them.
CREATE OR REPLACE FUNCTION tutti.parts_of_columns(relation oid) RETURNS text[]
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $tutti$
#variable_conflict use_column
BEGIN
    RETURN (
    WITH this AS (
        SELECT format('%I.%I', n.nspname, c.relname) AS name, n.nspname, c.relkind, c.reloftype, c.relowner
        FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = relation
    ), part (kind, attnum, make) AS (
        -- ONLY: each child says for itself whether it has one.
        SELECT 1, a.attnum, tutti.by_role(this.relowner, m.make, 'part', this.nspname)
        FROM this, pg_attrdef d JOIN pg_attribute a ON a.attrelid = d.adrelid AND a.attnum = d.adnum,
        LATERAL (SELECT format('ALTER TABLE ONLY %s ALTER COLUMN %I SET DEFAULT %s', this.name,
            a.attname, pg_get_expr(d.adbin, d.adrelid))) AS m (make)
        WHERE d.adrelid = relation AND a.attgenerated = ''
        -- PostgreSQL looks whether a check says it already.
        UNION ALL SELECT 2, a.attnum, tutti.by_role(this.relowner, m.make, 'part', this.nspname)
        FROM this, pg_attribute a, LATERAL (SELECT format('ALTER TABLE ONLY %s ALTER COLUMN %I SET NOT NULL',
            this.name, a.attname)) AS m (make) WHERE a.attrelid = relation AND a.attnum > 0 AND NOT a.attisdropped
            AND a.attnotnull AND NOT a.attislocal
        UNION ALL SELECT 3, 0, tutti.by_role(this.relowner, format('ALTER TABLE %s OF %s', this.name,
            format_type(this.reloftype, NULL)), 'part', this.nspname)
        FROM this WHERE this.reloftype <> 0
        UNION ALL SELECT 4, d.objsubid, CASE d.objsubid
            WHEN 0 THEN format('COMMENT ON %s %s IS %L',
                CASE this.relkind WHEN 'v' THEN 'VIEW' ELSE 'TABLE' END, this.name, d.description)
            ELSE format('COMMENT ON COLUMN %s.%I IS %L', this.name, a.attname, d.description) END
        FROM this, pg_description d
        LEFT JOIN pg_attribute a ON a.attrelid = d.objoid AND a.attnum = d.objsubid
        WHERE d.classoid = 'pg_class'::regclass AND d.objoid = relation
    )
    SELECT coalesce(array_agg(p.make ORDER BY p.kind, p.attnum), '{}') FROM part p);
END $tutti$;

DROP FUNCTION IF EXISTS tutti.as_owner_of(text, text), tutti.run_as(name, text, text, text),
    tutti.run_as(name, text, text, text, oid), tutti.by_role(oid, text);

-- What belongs to a table: columns' defaults, constraints, indexes, its place under a parent, triggers,
-- rules, policies, rights.
CREATE OR REPLACE FUNCTION tutti.parts_of_table(relation oid) RETURNS text[]
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $tutti$
DECLARE
    c pg_class;
    name text;
    schema name;
    make text[] := '{}';
    further text[];
BEGIN
    SELECT * INTO c FROM pg_class WHERE oid = relation;
    SELECT format('%I.%I', n.nspname, c.relname), n.nspname INTO name, schema FROM pg_namespace n WHERE n.oid = c.relnamespace;
    make := tutti.parts_of_columns(relation);
    -- Foreign keys come last of all, in tutti.definitions.
    SELECT array_agg(tutti.by_role(c.relowner, m.make, 'part', schema)
        ORDER BY k.contype, k.oid) INTO further
    FROM pg_constraint k, LATERAL (SELECT format('ALTER TABLE %s ADD CONSTRAINT %I %s', name, k.conname,
        pg_get_constraintdef(k.oid))) AS m (make)
    WHERE k.conrelid = relation AND k.contype IN ('c', 'p', 'u', 'x')
        AND (k.conislocal OR c.relispartition);
    make := make || coalesce(further, '{}');
    SELECT array_agg(tutti.by_role(c.relowner, m.make, 'part', schema) ORDER BY i.indexrelid)
        INTO further
    FROM pg_index i,
        LATERAL (SELECT replace(pg_get_indexdef(i.indexrelid), ' ON ONLY ', ' ON ')) AS m (make)
    WHERE i.indrelid = relation AND i.indislive AND NOT EXISTS (
        SELECT FROM pg_constraint k WHERE k.conindid = i.indexrelid AND k.contype IN ('p', 'u', 'x'));
    make := make || coalesce(further, '{}');
    SELECT array_agg(format('ALTER INDEX %I.%I SET (%s)', n.nspname, x.relname,
            (SELECT string_agg(format('%s = %L', o.option_name, o.option_value), ', ')
             FROM pg_options_to_table(x.reloptions) o)))
        FILTER (WHERE x.reloptions IS NOT NULL AND x.relkind = 'i')
        || array_agg(tutti.by_role(c.relowner, format('ALTER TABLE %s CLUSTER ON %I', name, x.relname),
            'part', schema)) FILTER (WHERE i.indisclustered)
        || array_agg(tutti.by_role(c.relowner, format('ALTER TABLE %s REPLICA IDENTITY USING INDEX %I', name, x.relname),
            'part', schema))
            FILTER (WHERE i.indisreplident AND c.relreplident = 'i') INTO further
    FROM pg_index i JOIN pg_class x ON x.oid = i.indexrelid JOIN pg_namespace n ON n.oid = x.relnamespace
    WHERE i.indrelid = relation AND i.indislive;
    make := make || coalesce(further, '{}');
    IF c.relispartition THEN
        -- PostgreSQL looks whether checks, those of the default partition too, say already what the bounds say,
        -- reads these, and makes the parent's foreign keys.
        -- Where the parent is another's, its owner's code is not told from the rest: a bound is of its key's type.
        SELECT array_agg(m.make ORDER BY m.position) INTO further
        FROM pg_inherits h JOIN pg_class p ON p.oid = h.inhparent
        JOIN pg_namespace n ON n.oid = p.relnamespace,
        LATERAL (SELECT p.relowner = c.relowner OR tutti.plans_code(relation) AS is_owners,
            format('%I.%I', n.nspname, p.relname) AS parent) AS o,
        LATERAL (SELECT format('ALTER TABLE %s ATTACH PARTITION %s %s', o.parent, name,
            pg_get_expr(c.relpartbound, c.oid)) AS attach) AS a,
        LATERAL (VALUES (1, CASE WHEN tutti.plans_code(relation, c.relowner)
                OR p.relowner <> c.relowner AND EXISTS (SELECT FROM pg_partitioned_table k WHERE k.partrelid = p.oid
                    AND (k.partexprs IS NOT NULL OR EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = p.oid
                        AND a.attnum = ANY (k.partattrs::int2[]) AND tutti.is_code('pg_type', a.atttypid))))
            THEN format('SELECT tutti.refuse_foreign_code(%L)', 'partition ' || name)
            ELSE format('SELECT tutti.refuse_planned(%L, %L, %L)', 'partition ' || name,
                CASE WHEN o.is_owners THEN pg_get_userbyid(c.relowner) END, ARRAY[name, o.parent]) END),
            (2, CASE WHEN o.is_owners THEN tutti.by_role(c.relowner, a.attach, 'part', schema) ELSE a.attach END)) AS m (position, make)
        WHERE h.inhrelid = relation;
        make := make || coalesce(further, '{}');
    END IF;
    SELECT array_agg(tutti.by_role(c.relowner, pg_get_statisticsobjdef(s.oid), 'part', schema) ORDER BY s.oid) INTO further
    FROM pg_statistic_ext s WHERE s.stxrelid = relation;
    make := make || coalesce(further, '{}');
    SELECT array_agg(tutti.by_role(c.relowner, pg_get_ruledef(r.oid), 'part', schema) ORDER BY r.oid)
        || array_agg(format('ALTER TABLE %s %s RULE %I', name,
            CASE r.ev_enabled WHEN 'D' THEN 'DISABLE' WHEN 'R' THEN 'ENABLE REPLICA' ELSE 'ENABLE ALWAYS' END,
            r.rulename)) FILTER (WHERE r.ev_enabled <> 'O') INTO further
    FROM pg_rewrite r WHERE r.ev_class = relation AND r.ev_type <> '1';
    make := make || coalesce(further, '{}');
    SELECT array_agg(CASE WHEN t.tgqual IS NOT NULL
            THEN tutti.by_role(c.relowner, pg_get_triggerdef(t.oid), 'part', schema) ELSE pg_get_triggerdef(t.oid) END ORDER BY t.oid)
        || array_agg(format('ALTER TABLE %s %s TRIGGER %I', name,
            CASE t.tgenabled WHEN 'D' THEN 'DISABLE' WHEN 'R' THEN 'ENABLE REPLICA' ELSE 'ENABLE ALWAYS' END,
            t.tgname)) FILTER (WHERE t.tgenabled <> 'O') INTO further
    FROM pg_trigger t WHERE t.tgrelid = relation AND NOT t.tgisinternal AND t.tgparentid = 0;
    make := make || coalesce(further, '{}');
    IF c.relrowsecurity THEN
        make := make || format('ALTER TABLE %s ENABLE ROW LEVEL SECURITY', name);
    END IF;
    IF c.relforcerowsecurity THEN
        make := make || format('ALTER TABLE %s FORCE ROW LEVEL SECURITY', name);
    END IF;
    SELECT array_agg(tutti.by_role(c.relowner, m.make, 'part', schema) ORDER BY p.oid) INTO further
    FROM pg_policy p, LATERAL (SELECT format('CREATE POLICY %I ON %s AS %s FOR %s TO %s%s%s', p.polname, name,
        CASE WHEN p.polpermissive THEN 'PERMISSIVE' ELSE 'RESTRICTIVE' END,
        CASE p.polcmd WHEN 'r' THEN 'SELECT' WHEN 'a' THEN 'INSERT' WHEN 'w' THEN 'UPDATE'
            WHEN 'd' THEN 'DELETE' ELSE 'ALL' END,
        (SELECT string_agg(CASE r WHEN 0 THEN 'PUBLIC' ELSE r::regrole::text END, ', ')
         FROM unnest(p.polroles) r),
        ' USING (' || pg_get_expr(p.polqual, p.polrelid) || ')',
        ' WITH CHECK (' || pg_get_expr(p.polwithcheck, p.polrelid) || ')')) AS m (make)
    WHERE p.polrelid = relation;
    make := make || coalesce(further, '{}');
    IF c.relreplident IN ('n', 'f') THEN
        make := make || format('ALTER TABLE %s REPLICA IDENTITY %s', name,
            CASE c.relreplident WHEN 'n' THEN 'NOTHING' ELSE 'FULL' END);
    END IF;
    make := make || tutti.rights('TABLE', name, c.relowner, c.relacl);
    SELECT array_agg(m.make ORDER BY a.attnum, m.position) INTO further
    FROM pg_attribute a, unnest(tutti.gifts('TABLE', name, c.relowner, a.attacl, a.attname))
        WITH ORDINALITY AS m (make, position)
    WHERE a.attrelid = relation AND a.attacl IS NOT NULL;
    RETURN make || coalesce(further, '{}') || tutti.statistics_settings(relation)
        || tutti.comments('pg_constraint', ARRAY(SELECT k.oid FROM pg_constraint k
            WHERE k.conrelid = relation AND k.contype IN ('c', 'p', 'u', 'x')))
        || tutti.comments('pg_class', ARRAY(SELECT i.indexrelid FROM pg_index i
            WHERE i.indrelid = relation AND i.indislive))
        || tutti.comments('pg_class', ARRAY(SELECT d.objid FROM pg_depend d
            WHERE d.classid = 'pg_class'::regclass AND d.refclassid = 'pg_class'::regclass
                AND d.refobjid = relation AND d.deptype = 'i' AND d.refobjsubid > 0))
        || tutti.comments('pg_statistic_ext', ARRAY(SELECT s.oid FROM pg_statistic_ext s
            WHERE s.stxrelid = relation))
        || tutti.comments('pg_rewrite', ARRAY(SELECT r.oid FROM pg_rewrite r
            WHERE r.ev_class = relation AND r.ev_type <> '1'))
        || tutti.comments('pg_trigger', ARRAY(SELECT t.oid FROM pg_trigger t
            WHERE t.tgrelid = relation AND NOT t.tgisinternal))
        || tutti.comments('pg_policy', ARRAY(SELECT p.oid FROM pg_policy p
            WHERE p.polrelid = relation));
END $tutti$;

-- A setting's value as SET takes it: some are lists of names, each quoted by itself.
CREATE OR REPLACE FUNCTION tutti.setting_clause(setting text) RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $tutti$
DECLARE
    name text := split_part(setting, '=', 1);
    value text := substr(setting, strpos(setting, '=') + 1);
BEGIN
    IF name IN ('search_path', 'temp_tablespaces', 'local_preload_libraries', 'session_preload_libraries') THEN
        value := (SELECT string_agg(quote_literal(CASE WHEN m[1] IS NULL THEN m[2]
                ELSE replace(m[1], '""', '"') END), ', ')
            FROM regexp_matches(value, '"((?:[^"]|"")*)"|([^",[:space:]]+)', 'g') AS m);
    ELSE
        value := quote_literal(value);
    END IF;
    RETURN format('SET %s TO %s',
        (SELECT string_agg(quote_ident(part), '.') FROM unnest(string_to_array(name, '.')) part),
        coalesce(value, ''''''));
END $tutti$;

-- What ALTER ROLE and ALTER DATABASE have set for a role (NULL: for all), in this database or everywhere.
CREATE OR REPLACE FUNCTION tutti.settings_of(role name) RETURNS text[]
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $tutti$
#variable_conflict use_column
BEGIN
    RETURN (
    SELECT coalesce(array_agg(CASE s.setdatabase WHEN 0 THEN 'all ' ELSE 'here ' END || o ORDER BY
        s.setdatabase = 0, o), '{}')
    FROM pg_db_role_setting s, unnest(s.setconfig) o
    WHERE s.setrole = (CASE WHEN settings_of.role IS NULL THEN 0::oid
            ELSE (SELECT r.oid FROM pg_authid r WHERE r.rolname = settings_of.role) END)
        AND s.setdatabase IN (0, (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())));
END $tutti$;

-- Takes back what these roles are members of, but for these pairs. Returns how much that is, or would be.
CREATE OR REPLACE FUNCTION tutti.revoke_others(roles name[], pairs text[], really boolean) RETURNS integer
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $tutti$
DECLARE
    other record;
    count integer := 0;
BEGIN
    FOR other IN SELECT r.rolname AS role, m.rolname AS member
        FROM pg_auth_members g JOIN pg_roles r ON r.oid = g.roleid JOIN pg_roles m ON m.oid = g.member
        WHERE m.rolname = ANY (roles) AND (r.rolname ~ '^pg_' OR r.rolname = ANY (roles))
            AND format('%I %I %s', r.rolname, m.rolname, g.admin_option) <> ALL (pairs)
    LOOP
        count := count + 1;
        IF really THEN
            EXECUTE format('REVOKE %I FROM %I CASCADE', other.role, other.member);
        END IF;
    END LOOP;
    RETURN count;
END $tutti$;

-- Roles are on each node what they are on node 1. `probe`: it is so already.
CREATE OR REPLACE FUNCTION tutti.role_definitions()
RETURNS TABLE (probe text, make text[])
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $tutti$
#variable_conflict use_column
DECLARE
    roles name[];
    pairs text[];
BEGIN
    RETURN QUERY
    WITH role AS (SELECT r.*, concat_ws(' ', CASE WHEN r.rolsuper THEN 'SUPERUSER' ELSE 'NOSUPERUSER' END,
            CASE WHEN r.rolinherit THEN 'INHERIT' ELSE 'NOINHERIT' END,
            CASE WHEN r.rolcreaterole THEN 'CREATEROLE' ELSE 'NOCREATEROLE' END,
            CASE WHEN r.rolcreatedb THEN 'CREATEDB' ELSE 'NOCREATEDB' END,
            CASE WHEN r.rolcanlogin THEN 'LOGIN' ELSE 'NOLOGIN' END,
            CASE WHEN r.rolreplication THEN 'REPLICATION' ELSE 'NOREPLICATION' END,
            CASE WHEN r.rolbypassrls THEN 'BYPASSRLS' ELSE 'NOBYPASSRLS' END,
            format('CONNECTION LIMIT %s PASSWORD %s VALID UNTIL %L', r.rolconnlimit,
                coalesce(quote_literal(r.rolpassword), 'NULL'), coalesce(r.rolvaliduntil, 'infinity'))) AS may
        FROM pg_authid r WHERE r.rolname !~ '^pg_')
    SELECT format('EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = %L)', r.rolname),
        ARRAY[format('CREATE ROLE %I %s', r.rolname, r.may)]
    FROM role r
    UNION ALL
    -- One that is there already, by whoever made it, must prove itself by the same verifier, and may do
    -- the same; but not the gateway's own, whose password is configured for each node.
    SELECT format('EXISTS (SELECT FROM pg_catalog.pg_authid r WHERE rolname = %L AND (r.oid = '
            '(SELECT n.nspowner FROM pg_catalog.pg_namespace n WHERE n.nspname = ''tutti'') '
            'OR rolpassword IS NOT DISTINCT FROM %L AND %L = ARRAY[rolsuper, rolinherit, rolcreaterole, '
            'rolcreatedb, rolcanlogin, rolreplication, rolbypassrls] AND rolconnlimit = %s '
            'AND coalesce(rolvaliduntil, ''infinity'') = %L))', r.rolname, r.rolpassword,
            ARRAY[r.rolsuper, r.rolinherit, r.rolcreaterole, r.rolcreatedb, r.rolcanlogin, r.rolreplication,
                r.rolbypassrls], r.rolconnlimit, coalesce(r.rolvaliduntil, 'infinity')),
        ARRAY[format('ALTER ROLE %I %s', r.rolname, r.may)]
    FROM role r WHERE r.oid <> (SELECT n.nspowner FROM pg_namespace n WHERE n.nspname = 'tutti')
    UNION ALL
    SELECT format('tutti.settings_of(%L) = %L', r.rolname, tutti.settings_of(r.rolname)),
        ARRAY[format('ALTER ROLE %I RESET ALL', r.rolname),
            format('ALTER ROLE %I IN DATABASE %I RESET ALL', r.rolname, current_database())]
        || coalesce((SELECT array_agg(format('ALTER ROLE %I%s %s', r.rolname,
                CASE WHEN s LIKE 'all %' THEN '' ELSE format(' IN DATABASE %I', current_database()) END,
                tutti.setting_clause(substr(s, strpos(s, ' ') + 1))))
            FROM unnest(tutti.settings_of(r.rolname)) s), '{}')
    FROM pg_authid r WHERE r.rolname !~ '^pg_'
    UNION ALL
    SELECT format('tutti.settings_of(NULL) = %L', tutti.settings_of(NULL)),
        ARRAY['ALTER ROLE ALL RESET ALL', format('ALTER DATABASE %I RESET ALL', current_database())]
        || coalesce((SELECT array_agg(format('ALTER %s %s',
                CASE WHEN s LIKE 'all %' THEN 'ROLE ALL' ELSE format('DATABASE %I', current_database()) END,
                tutti.setting_clause(substr(s, strpos(s, ' ') + 1))))
            FROM unnest(tutti.settings_of(NULL)) s), '{}');
    SELECT array_agg(r.rolname) INTO roles FROM pg_roles r WHERE r.rolname !~ '^pg_';
    SELECT coalesce(array_agg(format('%I %I %s', r.rolname, m.rolname, g.admin_option)), '{}') INTO pairs
    FROM pg_auth_members g JOIN pg_roles r ON r.oid = g.roleid JOIN pg_roles m ON m.oid = g.member
    WHERE m.rolname !~ '^pg_';
    RETURN QUERY
    SELECT format('tutti.revoke_others(%L, %L, false) = 0', roles, pairs),
        ARRAY[format('SELECT tutti.revoke_others(%L, %L, true)', roles, pairs)]
    UNION ALL
    SELECT format('EXISTS (SELECT FROM pg_catalog.pg_auth_members g '
            'JOIN pg_catalog.pg_roles r ON r.oid = g.roleid JOIN pg_catalog.pg_roles m ON m.oid = g.member '
            'WHERE r.rolname = %L AND m.rolname = %L)', r.rolname, m.rolname),
        ARRAY[format('GRANT %I TO %I%s', r.rolname, m.rolname,
            CASE WHEN g.admin_option THEN ' WITH ADMIN OPTION' ELSE '' END)]
    FROM pg_auth_members g JOIN pg_roles r ON r.oid = g.roleid JOIN pg_roles m ON m.oid = g.member
    WHERE m.rolname !~ '^pg_';
END $tutti$;

-- Who may do what with a schema, or with the database; in one text, by name.
CREATE OR REPLACE FUNCTION tutti.rights_on(kind "char", name name) RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $tutti$
#variable_conflict use_column
BEGIN
    RETURN (
    SELECT format('%s: %s', o.owner::regrole, (SELECT string_agg(g.given, ', ' ORDER BY g.given)
            FROM (SELECT DISTINCT format('%s %s %s of %s', e.grantee::regrole, e.privilege_type, e.is_grantable,
                    e.grantor::regrole)
                FROM aclexplode(o.acl) e) AS g (given)))
    FROM (SELECT n.nspowner AS owner, coalesce(n.nspacl, acldefault('n', n.nspowner)) AS acl
            FROM pg_namespace n WHERE rights_on.kind = 'n' AND n.nspname = rights_on.name
        UNION ALL SELECT d.datdba, coalesce(d.datacl, acldefault('d', d.datdba))
            FROM pg_database d WHERE rights_on.kind = 'd' AND d.datname = rights_on.name) AS o);
END $tutti$;

-- Takes all rights on a schema or the database from everybody.
CREATE OR REPLACE FUNCTION tutti.revoke_rights(kind "char", name name) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $tutti$
#variable_conflict use_column
DECLARE
    given oid;
BEGIN
    FOR given IN SELECT DISTINCT e.grantee FROM (
            SELECT coalesce(n.nspacl, acldefault('n', n.nspowner)) AS acl FROM pg_namespace n
            WHERE revoke_rights.kind = 'n' AND n.nspname = revoke_rights.name
            UNION ALL SELECT coalesce(d.datacl, acldefault('d', d.datdba)) FROM pg_database d
            WHERE revoke_rights.kind = 'd' AND d.datname = revoke_rights.name) AS o, aclexplode(o.acl) e
    LOOP
        EXECUTE format('REVOKE ALL ON %s %I FROM %s CASCADE',
            CASE revoke_rights.kind WHEN 'n' THEN 'SCHEMA' ELSE 'DATABASE' END, revoke_rights.name,
            CASE given WHEN 0 THEN 'PUBLIC' ELSE given::regrole::text END);
    END LOOP;
END $tutti$;

-- What ALTER DEFAULT PRIVILEGES has left, each entry with what takes it back and what makes it again.
CREATE OR REPLACE FUNCTION tutti.default_rights()
RETURNS TABLE (entry text, take_back text[], make text[])
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $tutti$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    WITH entry AS (SELECT format('ALTER DEFAULT PRIVILEGES FOR ROLE %s%s', d.defaclrole::regrole,
                ' IN SCHEMA ' || quote_ident(n.nspname)) AS change,
            CASE d.defaclobjtype WHEN 'r' THEN 'TABLES' WHEN 'S' THEN 'SEQUENCES' WHEN 'f' THEN 'FUNCTIONS'
                WHEN 'T' THEN 'TYPES' ELSE 'SCHEMAS' END AS kind,
            d.defaclacl AS acl,
            -- With a schema it comes on top of what is given without one.
            CASE d.defaclnamespace WHEN 0 THEN acldefault(CASE d.defaclobjtype WHEN 'S' THEN 's'
                ELSE d.defaclobjtype END, d.defaclrole) END AS usual
        FROM pg_default_acl d LEFT JOIN pg_namespace n ON n.oid = d.defaclnamespace),
    given AS (SELECT e.change, e.kind, g.is_usual,
            CASE g.grantee WHEN 0 THEN 'PUBLIC' ELSE g.grantee::regrole::text END AS grantee,
            g.privilege_type, CASE WHEN g.is_grantable THEN ' WITH GRANT OPTION' ELSE '' END AS option
        FROM entry e CROSS JOIN LATERAL (SELECT false AS is_usual, a.* FROM aclexplode(e.acl) a
            UNION ALL SELECT true, a.* FROM aclexplode(e.usual) a) AS g),
    statement AS (SELECT g.change, g.kind, g.is_usual,
            array_agg(DISTINCT format('%s REVOKE ALL ON %s FROM %s', g.change, g.kind, g.grantee)) AS revoke,
            array_agg(format('%s GRANT %s ON %s TO %s%s', g.change, g.privilege_type, g.kind, g.grantee, g.option)
                ORDER BY g.grantee, g.privilege_type) AS give
        FROM given g GROUP BY 1, 2, 3)
    SELECT format('%s %s: %s', e.change, e.kind, given.give),
        coalesce(given.revoke, '{}') || coalesce(usual.give, '{}'),
        coalesce(usual.revoke, '{}') || coalesce(given.give, '{}')
    FROM entry e
    LEFT JOIN statement given ON given.change = e.change AND given.kind = e.kind AND NOT given.is_usual
    LEFT JOIN statement usual ON usual.change = e.change AND usual.kind = e.kind AND usual.is_usual;
END $tutti$;

-- Takes back all that ALTER DEFAULT PRIVILEGES has left.
CREATE OR REPLACE FUNCTION tutti.take_back_default_rights() RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $tutti$
DECLARE
    statement text;
BEGIN
    FOR statement IN SELECT unnest(d.take_back) FROM tutti.default_rights() d LOOP
        EXECUTE statement;
    END LOOP;
END $tutti$;

-- Schemas that are everywhere, the database, and what new objects give: the same may use them as on node 1.
CREATE OR REPLACE FUNCTION tutti.right_definitions()
RETURNS TABLE (probe text, make text[])
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $tutti$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT format('tutti.rights_on(%L, %L) = %L', o.kind, o.name, tutti.rights_on(o.kind, o.name)),
        ARRAY[format('ALTER %s %I OWNER TO %s', o.word, o.name, o.owner::regrole),
            format('SELECT tutti.revoke_rights(%L, %L)', o.kind, o.name)]
        || tutti.gifts(o.word, quote_ident(o.name), o.owner, o.acl)
    FROM (SELECT 'n'::"char" AS kind, 'SCHEMA' AS word, n.nspname AS name, n.nspowner AS owner,
                coalesce(n.nspacl, acldefault('n', n.nspowner)) AS acl
            FROM pg_namespace n WHERE (n.oid >= 16384 OR n.nspname = 'public')
                AND n.nspname <> 'tutti' AND n.nspname !~ '^pg_'
        UNION ALL SELECT 'd', 'DATABASE', d.datname, d.datdba, coalesce(d.datacl, acldefault('d', d.datdba))
            FROM pg_database d WHERE d.datname = current_database()) AS o
    UNION ALL
    SELECT format('%L = ARRAY(SELECT d.entry FROM tutti.default_rights() d ORDER BY 1)',
            ARRAY(SELECT d.entry FROM tutti.default_rights() d ORDER BY 1)),
        ARRAY['SELECT tutti.take_back_default_rights()']
        || ARRAY(SELECT unnest(d.make) FROM tutti.default_rights() d);
END $tutti$;

-- Whether this transaction has made a row that it sees.
CREATE OR REPLACE FUNCTION tutti.is_own(made xid) RETURNS boolean
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $tutti$
DECLARE
    top xid8 := pg_current_xact_id_if_assigned();
BEGIN
    IF top IS NULL OR age(made) > age(top::xid) THEN
        RETURN false;
    END IF;
    RETURN pg_xact_status((((top::text::numeric - (top::text::numeric % 4294967296))
        + made::text::numeric)::text)::xid8) = 'in progress';
END $tutti$;

-- `everything`: beside what the roots need, whatever can be elsewhere; NULL: what of it this transaction has
-- made.
CREATE OR REPLACE FUNCTION tutti.describe(roots oid[], everything boolean) RETURNS jsonb
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_generic_plan SET jit = off
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $tutti$
DECLARE
    item record;
    probe text;
    make text[];
    name text;
    roles jsonb := '[]';
    first_make jsonb := '[]';
    later_make jsonb := '[]';
    last_make jsonb := '[]';
    last_rights jsonb := '[]';
    further text[];
    family oid[];
    over_family oid[];
    table_name text;
    drops text;
    address record;
    nobodys oid[];
BEGIN
    SELECT array_agg(n.oid) INTO nobodys FROM pg_namespace n
    WHERE n.nspname ~ '^pg_(toast_)?temp_';
    nobodys := coalesce(nobodys, '{}');
    WITH RECURSIVE tree (oid) AS (
        SELECT unnest(roots)
        UNION SELECT h.inhrelid FROM tree t JOIN pg_inherits h ON h.inhparent = t.oid
            JOIN pg_class c ON c.oid = h.inhrelid
        WHERE c.relkind IN ('r', 'p') AND c.relnamespace <> ALL (nobodys)
    ) SELECT coalesce(array_agg(oid), '{}') INTO family FROM tree;
    -- Views that read nothing but what is on other nodes too come along.
    WITH RECURSIVE over (view) AS (
        SELECT v.oid FROM unnest(family) AS f (oid) CROSS JOIN LATERAL (SELECT d.objid FROM pg_depend d
            WHERE d.refclassid = 'pg_class'::regclass AND d.refobjid = f.oid
                AND d.classid = 'pg_rewrite'::regclass OFFSET 0) AS d
        JOIN pg_rewrite r ON r.oid = d.objid AND r.ev_type = '1' AND r.ev_class <> f.oid
        JOIN pg_class v ON v.oid = r.ev_class AND v.relkind = 'v' AND v.relnamespace <> ALL (nobodys)
        UNION SELECT v.oid FROM over f CROSS JOIN LATERAL (SELECT d.objid FROM pg_depend d
            WHERE d.refclassid = 'pg_class'::regclass AND d.refobjid = f.view
                AND d.classid = 'pg_rewrite'::regclass OFFSET 0) AS d
        JOIN pg_rewrite r ON r.oid = d.objid AND r.ev_type = '1' AND r.ev_class <> f.view
        JOIN pg_class v ON v.oid = r.ev_class AND v.relkind = 'v' AND v.relnamespace <> ALL (nobodys)
    ) SELECT coalesce(array_agg(o.view), '{}') INTO over_family FROM over o;
    IF over_family <> '{}' THEN
        WITH RECURSIVE below (view, used) AS (
            SELECT o.oid, o.oid FROM unnest(over_family) AS o (oid)
            UNION SELECT b.view, d.refobjid FROM below b JOIN pg_class v ON v.oid = b.used AND v.relkind = 'v'
                AND v.oid >= 16384 AND v.relnamespace <> ALL (nobodys)
            JOIN pg_rewrite r ON r.ev_class = v.oid AND r.ev_type = '1'
            JOIN pg_depend d ON d.classid = 'pg_rewrite'::regclass AND d.objid = r.oid
                AND d.refclassid = 'pg_class'::regclass AND d.refobjid <> r.ev_class
        ) SELECT family || coalesce(array_agg(o.oid), '{}') INTO family FROM unnest(over_family) AS o (oid)
        WHERE NOT EXISTS (SELECT FROM below b JOIN pg_class c ON c.oid = b.used
            WHERE b.view = o.oid AND c.relkind <> 'v' AND c.oid >= 16384 AND c.oid <> ALL (family)
                AND NOT EXISTS (SELECT FROM tutti.placement p WHERE p.relation = c.oid AND p.kind <> 'home'));
    END IF;

    -- So do, with everything, views that read no table at all.
    IF everything IS NOT FALSE THEN
        WITH RECURSIVE reads (view, used) AS (
            SELECT DISTINCT r.ev_class, d.refobjid FROM pg_rewrite r
            JOIN pg_depend d ON d.classid = 'pg_rewrite'::regclass AND d.objid = r.oid
                AND d.refclassid = 'pg_class'::regclass AND d.refobjid <> r.ev_class
            WHERE r.ev_type = '1' AND r.ev_class >= 16384
        ), of_tables (view) AS (
            SELECT r.view FROM reads r JOIN pg_class c ON c.oid = r.used AND c.relkind <> 'v' AND c.oid >= 16384
            UNION SELECT r.view FROM of_tables t JOIN reads r ON r.used = t.view
        ) SELECT family || coalesce(array_agg(v.oid), '{}') INTO family FROM pg_class v
        JOIN pg_namespace n ON n.oid = v.relnamespace
        WHERE v.relkind = 'v' AND v.oid >= 16384 AND n.nspname <> 'tutti' AND n.nspname !~ '^pg_(toast_)?temp_'
            AND v.oid NOT IN (SELECT view FROM of_tables) AND (everything OR tutti.is_own(v.xmin))
            -- Nor a table's row type.
            AND NOT EXISTS (SELECT FROM pg_rewrite r JOIN pg_depend d ON d.classid = 'pg_rewrite'::regclass
                    AND d.objid = r.oid AND d.refclassid = 'pg_type'::regclass
                JOIN pg_type t ON t.oid = d.refobjid JOIN pg_class c ON c.oid = t.typrelid AND c.relkind <> 'c'
                WHERE r.ev_class = v.oid AND c.oid <> v.oid);
    END IF;

    -- Roles first: everything belongs to one.
    FOR item IN SELECT * FROM tutti.role_definitions() LOOP
        roles := roles || jsonb_build_object('probe', item.probe, 'make', item.make);
    END LOOP;
    IF everything THEN
        FOR item IN SELECT * FROM tutti.right_definitions() LOOP
            last_rights := last_rights || jsonb_build_object('probe', item.probe, 'make', item.make);
        END LOOP;
    END IF;

    FOR item IN
        WITH RECURSIVE member (classid, objid, refobjid) AS (
            SELECT d.classid, d.objid, d.refobjid FROM pg_depend d
            WHERE d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e'
        ), need (classid, objid) AS (
            SELECT 'pg_class'::regclass::oid, unnest(family)
            UNION SELECT all_there_is.classid, all_there_is.oid FROM (
                SELECT 'pg_namespace'::regclass::oid AS classid, n.oid, n.oid AS namespace, n.xmin AS made FROM pg_namespace n
                UNION ALL SELECT 'pg_extension'::regclass::oid, e.oid, e.extnamespace, e.xmin FROM pg_extension e
                UNION ALL SELECT 'pg_type'::regclass::oid, t.oid, t.typnamespace, t.xmin FROM pg_type t
                    LEFT JOIN pg_class c ON c.oid = t.typrelid
                    WHERE t.typtype IN ('e', 'd', 'r') OR t.typtype = 'c' AND c.relkind = 'c'
                UNION ALL SELECT 'pg_proc'::regclass::oid, p.oid, p.pronamespace, p.xmin FROM pg_proc p
                UNION ALL SELECT 'pg_operator'::regclass::oid, o.oid, o.oprnamespace, o.xmin FROM pg_operator o
                UNION ALL SELECT 'pg_collation'::regclass::oid, c.oid, c.collnamespace, c.xmin FROM pg_collation c
                UNION ALL SELECT 'pg_cast'::regclass::oid, c.oid, 0, c.xmin FROM pg_cast c
                UNION ALL SELECT 'pg_ts_parser'::regclass::oid, p.oid, p.prsnamespace, p.xmin FROM pg_ts_parser p
                UNION ALL SELECT 'pg_ts_template'::regclass::oid, t.oid, t.tmplnamespace, t.xmin FROM pg_ts_template t
                UNION ALL SELECT 'pg_ts_dict'::regclass::oid, d.oid, d.dictnamespace, d.xmin FROM pg_ts_dict d
                UNION ALL SELECT 'pg_ts_config'::regclass::oid, c.oid, c.cfgnamespace, c.xmin FROM pg_ts_config c
                UNION ALL SELECT 'pg_opfamily'::regclass::oid, f.oid, f.opfnamespace, f.xmin FROM pg_opfamily f
                UNION ALL SELECT 'pg_opclass'::regclass::oid, c.oid, c.opcnamespace, c.xmin FROM pg_opclass c
            ) all_there_is
            WHERE everything IS NOT FALSE AND all_there_is.oid >= 16384
                AND (everything OR tutti.is_own(all_there_is.made)) AND NOT EXISTS (
                SELECT FROM pg_namespace n WHERE n.oid = all_there_is.namespace
                    AND (n.nspname = 'tutti' OR n.nspname ~ '^pg_(toast_)?temp_'))
            UNION
            SELECT further.classid, further.objid FROM need n CROSS JOIN LATERAL (
                -- What it needs; of what belongs to an extension, the extension.
                SELECT d.refclassid AS classid, d.refobjid AS objid FROM pg_depend d
                WHERE d.classid = n.classid AND d.objid = n.objid AND d.deptype IN ('n', 'i', 'e')
                    AND (d.deptype = 'e' OR NOT EXISTS (SELECT FROM member m
                        WHERE m.classid = n.classid AND m.objid = n.objid))
                -- What is part of it: of its tables, and of domains.
                UNION ALL SELECT d.classid, d.objid FROM pg_depend d
                WHERE d.refclassid = n.classid AND d.refobjid = n.objid AND d.deptype IN ('a', 'i', 'P', 'S')
                    AND (n.classid = 'pg_class'::regclass AND n.objid = ANY (family)
                        AND d.classid = ANY (ARRAY['pg_attrdef'::regclass, 'pg_constraint'::regclass,
                            'pg_trigger'::regclass, 'pg_policy'::regclass, 'pg_rewrite'::regclass,
                            'pg_class'::regclass, 'pg_statistic_ext'::regclass]::oid[])
                        OR n.classid = 'pg_type'::regclass AND d.classid = 'pg_constraint'::regclass)
                -- A view's query is in its rule, a row type's columns in its relation.
                UNION ALL SELECT 'pg_rewrite'::regclass::oid, r.oid FROM pg_rewrite r, pg_class v
                WHERE n.classid = 'pg_class'::regclass AND r.ev_class = n.objid AND v.oid = n.objid
                    AND v.relkind = 'v'
                UNION ALL SELECT 'pg_class'::regclass::oid, t.typrelid FROM pg_type t
                WHERE n.classid = 'pg_type'::regclass AND t.oid = n.objid AND t.typtype = 'c'
                -- Functions that a function's text names.
                UNION ALL SELECT 'pg_proc'::regclass::oid, named.oid FROM pg_proc p
                JOIN pg_language l ON l.oid = p.prolang AND l.lanname IN ('sql', 'plpgsql')
                CROSS JOIN LATERAL (SELECT DISTINCT lower(w) AS word
                    FROM regexp_split_to_table(p.prosrc, '[^[:alnum:]_$]+') w) words
                JOIN pg_proc named ON named.proname = words.word AND named.oid >= 16384
                    AND named.pronamespace <> 'tutti'::regnamespace
                    AND named.pronamespace <> ALL (nobodys)
                WHERE n.classid = 'pg_proc'::regclass AND p.oid = n.objid
            ) further
            WHERE further.objid >= 16384
                -- (What keeps unique indexes over all nodes is made on each by the gateway.)
                AND NOT (further.classid = 'pg_proc'::regclass AND EXISTS (SELECT FROM pg_proc f
                    WHERE f.oid = further.objid AND f.pronamespace = 'tutti'::regnamespace))
        )
        SELECT DISTINCT n.classid, n.objid, c.relkind, t.typtype, t.typrelid, p.prokind
        FROM need n
        LEFT JOIN pg_class c ON n.classid = 'pg_class'::regclass AND c.oid = n.objid
        LEFT JOIN pg_type t ON n.classid = 'pg_type'::regclass AND t.oid = n.objid
        LEFT JOIN pg_proc p ON n.classid = 'pg_proc'::regclass AND p.oid = n.objid
        WHERE NOT EXISTS (SELECT FROM member m WHERE m.classid = n.classid AND m.objid = n.objid)
        ORDER BY 2
    LOOP
        probe := NULL;
        make := NULL;
        table_name := NULL;
        drops := NULL;
        CASE item.classid
        WHEN 'pg_namespace'::regclass THEN
            SELECT format('EXISTS (SELECT FROM pg_catalog.pg_namespace WHERE nspname = %L)', n.nspname),
                ARRAY[format('CREATE SCHEMA %I AUTHORIZATION %s', n.nspname, n.nspowner::regrole)]
                    || tutti.rights('SCHEMA', quote_ident(n.nspname), n.nspowner, n.nspacl)
            INTO probe, make FROM pg_namespace n WHERE n.oid = item.objid;
        WHEN 'pg_extension'::regclass THEN
            SELECT format('EXISTS (SELECT FROM pg_catalog.pg_extension WHERE extname = %L)', e.extname),
                ARRAY[format('CREATE EXTENSION %I SCHEMA %I VERSION %L CASCADE', e.extname, n.nspname, e.extversion)]
            INTO probe, make FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace
            WHERE e.oid = item.objid;
            -- One with tables keeps there what it is told on this node.
            SELECT format('DROP EXTENSION IF EXISTS %I CASCADE', e.extname) INTO drops FROM pg_extension e
            WHERE e.oid = item.objid AND NOT EXISTS (SELECT FROM pg_depend d JOIN pg_class c ON c.oid = d.objid
                WHERE d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid AND d.deptype = 'e'
                    AND d.classid = 'pg_class'::regclass AND c.relkind IN ('r', 'p'));
        WHEN 'pg_type'::regclass THEN
            -- An array's type comes with its element's, a table's with the table, a multirange's with
            -- the range.
            CONTINUE WHEN item.typtype = 'm' OR EXISTS (
                SELECT FROM pg_type t WHERE t.oid = item.objid AND (
                    t.typcategory = 'A' AND t.typelem <> 0 OR t.typrelid = ANY (family)));
            IF item.typtype = 'c' THEN
                SELECT format('%I.%I', n.nspname, c.relname) INTO name
                FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
                WHERE c.oid = item.typrelid AND c.relkind <> 'c';
                IF name IS NOT NULL THEN
                    SELECT format('pg_catalog.to_regclass(%L) IS NOT NULL', name), NULL INTO probe, make;
                END IF;
            END IF;
            IF probe IS NULL THEN
                -- A type of arrays that is called so gives its name up to what is made.
                SELECT format('EXISTS (SELECT FROM pg_catalog.pg_type WHERE oid = pg_catalog.to_regtype(%L) '
                        'AND (typcategory <> ''A'' OR typelem = 0))', format('%I.%I', n.nspname, t.typname)),
                    tutti.object_definition(item.classid, t.oid)
                INTO probe, make FROM pg_type t JOIN pg_namespace n ON n.oid = t.typnamespace
                WHERE t.oid = item.objid;
                SELECT format('DROP TYPE IF EXISTS %I.%I CASCADE', n.nspname, t.typname) INTO drops
                FROM pg_type t JOIN pg_namespace n ON n.oid = t.typnamespace
                WHERE t.oid = item.objid;
            END IF;
        WHEN 'pg_proc'::regclass THEN
            -- By name first, which has an index.
            SELECT format('EXISTS (SELECT FROM pg_catalog.pg_proc WHERE proname = %L AND oid::pg_catalog.regprocedure::pg_catalog.text = %L)',
                p.proname, item.objid::regprocedure)
            INTO probe FROM pg_proc p WHERE p.oid = item.objid;
            make := tutti.object_definition(item.classid, item.objid);
            drops := format('DROP ROUTINE IF EXISTS %s CASCADE', item.objid::regprocedure);
        WHEN 'pg_operator'::regclass THEN
            SELECT format('EXISTS (SELECT FROM pg_catalog.pg_operator WHERE oprname = %L AND oprcode::pg_catalog.oid <> 0 AND oid::pg_catalog.regoperator::pg_catalog.text = %L)',
                o.oprname, item.objid::regoperator)
            INTO probe FROM pg_operator o WHERE o.oid = item.objid AND o.oprcode <> 0;
            make := tutti.object_definition(item.classid, item.objid);
            drops := format('DROP OPERATOR IF EXISTS %s CASCADE', item.objid::regoperator);
        WHEN 'pg_collation'::regclass THEN
            SELECT format('EXISTS (SELECT FROM pg_catalog.pg_collation c JOIN pg_catalog.pg_namespace n '
                    'ON n.oid = c.collnamespace WHERE n.nspname = %L AND c.collname = %L)', n.nspname, c.collname)
            INTO probe FROM pg_collation c JOIN pg_namespace n ON n.oid = c.collnamespace
            WHERE c.oid = item.objid;
            make := tutti.object_definition(item.classid, item.objid);
            SELECT format('DROP COLLATION IF EXISTS %I.%I CASCADE', n.nspname, c.collname) INTO drops
            FROM pg_collation c JOIN pg_namespace n ON n.oid = c.collnamespace WHERE c.oid = item.objid;
        WHEN 'pg_cast'::regclass THEN
            SELECT format('EXISTS (SELECT FROM pg_catalog.pg_cast WHERE castsource = pg_catalog.to_regtype(%L) '
                    'AND casttarget = pg_catalog.to_regtype(%L))', format_type(c.castsource, NULL),
                    format_type(c.casttarget, NULL))
            INTO probe FROM pg_cast c WHERE c.oid = item.objid;
            make := tutti.object_definition(item.classid, item.objid);
            SELECT format('DROP CAST IF EXISTS (%s AS %s) CASCADE', format_type(c.castsource, NULL),
                format_type(c.casttarget, NULL)) INTO drops FROM pg_cast c WHERE c.oid = item.objid;
        WHEN 'pg_ts_parser'::regclass, 'pg_ts_template'::regclass, 'pg_ts_dict'::regclass, 'pg_ts_config'::regclass,
            'pg_opfamily'::regclass, 'pg_opclass'::regclass THEN
            make := tutti.object_definition(item.classid, item.objid);
            SELECT format('EXISTS (SELECT FROM pg_catalog.%I c JOIN pg_catalog.pg_namespace n ON n.oid = c.%snamespace '
                    'WHERE n.nspname = %L AND c.%sname = %L%s)',
                    o.relation, o.prefix, n.nspname, o.prefix, o.name,
                    CASE WHEN o.method IS NOT NULL THEN format(' AND c.%smethod = (SELECT a.oid '
                        'FROM pg_catalog.pg_am a WHERE a.amname = %L)', o.prefix, a.amname) END),
                format('DROP %s IF EXISTS %I.%I%s CASCADE', o.kind, n.nspname, o.name, ' USING ' || quote_ident(a.amname))
            INTO probe, drops
            FROM (SELECT 'pg_ts_dict' AS relation, 'dict' AS prefix, 'TEXT SEARCH DICTIONARY' AS kind, d.oid, d.dictname AS name,
                    d.dictnamespace AS namespace, NULL::oid AS method FROM pg_ts_dict d
                UNION ALL SELECT 'pg_ts_parser', 'prs', 'TEXT SEARCH PARSER', p.oid, p.prsname, p.prsnamespace, NULL
                    FROM pg_ts_parser p
                UNION ALL SELECT 'pg_ts_template', 'tmpl', 'TEXT SEARCH TEMPLATE', t.oid, t.tmplname, t.tmplnamespace, NULL
                    FROM pg_ts_template t
                UNION ALL SELECT 'pg_ts_config', 'cfg', 'TEXT SEARCH CONFIGURATION', c.oid, c.cfgname, c.cfgnamespace, NULL
                    FROM pg_ts_config c
                UNION ALL SELECT 'pg_opfamily', 'opf', 'OPERATOR FAMILY', f.oid, f.opfname, f.opfnamespace, f.opfmethod
                    FROM pg_opfamily f
                UNION ALL SELECT 'pg_opclass', 'opc', 'OPERATOR CLASS', c.oid, c.opcname, c.opcnamespace, c.opcmethod
                    FROM pg_opclass c) AS o
            JOIN pg_namespace n ON n.oid = o.namespace LEFT JOIN pg_am a ON a.oid = o.method
            WHERE o.oid = item.objid AND o.relation::regclass::oid = item.classid;
        WHEN 'pg_class'::regclass THEN
            -- Indexes and the like are parts; row types are made as types.
            CONTINUE WHEN item.relkind NOT IN ('r', 'p', 'v', 'S', 'm', 'f')
                OR (item.relkind = 'S' AND EXISTS (SELECT FROM pg_depend d
                    WHERE d.classid = 'pg_class'::regclass AND d.objid = item.objid AND d.deptype = 'i'));
            SELECT format('%I.%I', n.nspname, c.relname) INTO name
            FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = item.objid;
            probe := format('pg_catalog.to_regclass(%L) IS NOT NULL', name);
            IF item.relkind = 'S' THEN
                SELECT ARRAY[format('CREATE %sSEQUENCE %s AS %s %s',
                        CASE c.relpersistence WHEN 'u' THEN 'UNLOGGED ' ELSE '' END, name,
                        format_type(s.seqtypid, NULL), tutti.sequence_options(s.seqrelid)),
                    format('ALTER SEQUENCE %s OWNER TO %s', name, c.relowner::regrole)]
                    || tutti.rights('SEQUENCE', name, c.relowner, c.relacl)
                INTO make FROM pg_sequence s JOIN pg_class c ON c.oid = s.seqrelid
                WHERE s.seqrelid = item.objid;
                -- When the table is made: another may have needed the sequence before.
                SELECT last_make || coalesce(jsonb_agg(jsonb_build_object(
                        'of', format('pg_catalog.to_regclass(%L) IS NOT NULL',
                            format('%I.%I', n.nspname, c.relname)),
                        'make', ARRAY[format('ALTER SEQUENCE %s OWNED BY %I.%I.%I', name, n.nspname, c.relname,
                            a.attname)])), '[]') INTO last_make
                FROM pg_depend d JOIN pg_class c ON c.oid = d.refobjid JOIN pg_namespace n ON n.oid = c.relnamespace
                JOIN pg_attribute a ON a.attrelid = d.refobjid AND a.attnum = d.refobjsubid
                WHERE d.classid = 'pg_class'::regclass AND d.objid = item.objid
                    AND d.refclassid = 'pg_class'::regclass AND d.deptype = 'a' AND d.refobjid = ANY (family);
            ELSIF item.relkind = 'v' AND item.objid = ANY (family) THEN
                SELECT ARRAY[tutti.by_role(c.relowner, m.make, 'view', (SELECT n.nspname FROM pg_namespace n WHERE n.oid = c.relnamespace)),
                    format('ALTER VIEW %s OWNER TO %s', name, c.relowner::regrole)]
                    || tutti.rights('TABLE', name, c.relowner, c.relacl)
                INTO make FROM pg_class c, LATERAL (SELECT format('CREATE VIEW %s (%s)%s AS %s', name,
                        (SELECT string_agg(quote_ident(a.attname), ', ' ORDER BY a.attnum) FROM pg_attribute a
                         WHERE a.attrelid = c.oid AND a.attnum > 0),
                        ' WITH (' || (SELECT string_agg(format('%s = %L', o.option_name, o.option_value), ', ')
                            FROM pg_options_to_table(c.reloptions) o) || ')',
                        pg_get_viewdef(c.oid))) AS m (make)
                WHERE c.oid = item.objid;
                later_make := later_make || jsonb_build_object('of', probe,
                    'make', tutti.parts_of_columns(item.objid));
            ELSIF item.objid = ANY (family) THEN
                table_name := name;
                make := tutti.table_definition(item.objid);
                later_make := later_make || jsonb_build_object('of', probe,
                    'make', tutti.parts_of_table(item.objid));
                -- Whether the rows obey is asked by a query.
                SELECT array_agg(m.make ORDER BY k.oid, m.position) INTO further
                FROM pg_constraint k JOIN pg_class c ON c.oid = k.conrelid JOIN pg_namespace n ON n.oid = c.relnamespace
                JOIN pg_class p ON p.oid = k.confrelid JOIN pg_namespace pn ON pn.oid = p.relnamespace,
                -- Who was given the table may have no right to refer to the other; then there must be no code at all.
                LATERAL (SELECT has_table_privilege(c.relowner, k.confrelid, 'REFERENCES') OR (
                        SELECT bool_and(has_column_privilege(c.relowner, k.confrelid, a.attnum, 'REFERENCES'))
                        FROM unnest(k.confkey) AS a (attnum)) AS may_refer,
                    format('ALTER TABLE %s ADD CONSTRAINT %I %s', name, k.conname, pg_get_constraintdef(k.oid)) AS add) AS o,
                LATERAL (VALUES
                    (1, CASE WHEN tutti.plans_code(k.conrelid, c.relowner)
                        THEN format('SELECT tutti.refuse_foreign_code(%L)', format('foreign key %I of %s', k.conname, name))
                        ELSE format('SELECT tutti.refuse_planned(%L, %L, %L)', format('foreign key %I of %s', k.conname, name),
                            CASE WHEN o.may_refer THEN pg_get_userbyid(c.relowner) END,
                            ARRAY[name, format('%I.%I', pn.nspname, p.relname)]) END),
                    (2, CASE WHEN o.may_refer THEN tutti.by_role(c.relowner, o.add, 'part', n.nspname) ELSE o.add END))
                    AS m (position, make)
                WHERE k.conrelid = item.objid AND k.contype = 'f' AND k.conparentid = 0;
                IF further IS NOT NULL THEN
                    further := further || tutti.comments('pg_constraint', ARRAY(
                        SELECT k.oid FROM pg_constraint k
                        WHERE k.conrelid = item.objid AND k.contype = 'f'));
                    last_make := last_make || jsonb_build_object('of', probe, 'make', further);
                END IF;
                -- A partition's trigger comes from its parent, but may be switched by itself.
                SELECT array_agg(format('ALTER TABLE %s %s TRIGGER %I', name,
                    CASE t.tgenabled WHEN 'D' THEN 'DISABLE' WHEN 'R' THEN 'ENABLE REPLICA'
                        WHEN 'A' THEN 'ENABLE ALWAYS' ELSE 'ENABLE' END, t.tgname)) INTO further
                FROM pg_trigger t JOIN pg_trigger p ON p.oid = t.tgparentid
                WHERE t.tgrelid = item.objid AND NOT t.tgisinternal AND t.tgenabled <> p.tgenabled;
                IF further IS NOT NULL THEN
                    last_make := last_make || jsonb_build_object('of', probe, 'make', further);
                END IF;
            END IF;
        WHEN 'pg_constraint'::regclass, 'pg_attrdef'::regclass, 'pg_trigger'::regclass,
            'pg_policy'::regclass, 'pg_rewrite'::regclass, 'pg_statistic_ext'::regclass THEN
            CONTINUE;
        ELSE
            NULL;
        END CASE;
        IF probe IS NULL THEN
            probe := 'false';
        END IF;
        -- What is said of a table or a view comes with its columns.
        IF item.classid <> 'pg_extension'::regclass AND coalesce(item.relkind, 'S') = 'S' THEN
            make := make || tutti.comments(item.classid, ARRAY[item.objid]);
        END IF;
        IF item.typtype = 'd' THEN
            make := make || tutti.comments('pg_constraint', ARRAY(
                SELECT k.oid FROM pg_constraint k WHERE k.contypid = item.objid));
        END IF;
        SELECT * INTO address FROM pg_identify_object_as_address(item.classid, item.objid, 0);
        first_make := first_make || jsonb_build_object('probe', probe, 'make', coalesce(to_jsonb(make), 'null'),
            'drop', drops, 'table', table_name, 'what', pg_describe_object(item.classid, item.objid, 0),
            'essence', CASE WHEN make IS NOT NULL THEN tutti.essence(item.classid, item.objid) END,
            'kind', address.type, 'names', address.object_names, 'arguments', address.object_args,
            'because', (SELECT string_agg(format('Foreign key %I of %s refers to it', k.conname,
                    k.conrelid::regclass), '; ' ORDER BY k.oid)
                FROM pg_constraint k WHERE item.classid = 'pg_class'::regclass AND k.contype = 'f'
                    AND k.confrelid = item.objid AND k.conrelid = ANY (family)));
    END LOOP;
    RETURN jsonb_build_object('roles', roles, 'first', first_make || last_rights, 'later', later_make,
        'last', last_make);
END $tutti$;

-- Whoever asks may have floats and dates written otherwise, or with less of them.
DO $tutti$
BEGIN
    IF (SELECT NOT p.proretset FROM pg_proc p
        WHERE p.oid = to_regprocedure('tutti.definitions(oid[], boolean, text)')) THEN
        DROP FUNCTION tutti.definitions(oid[], boolean, text);
    END IF;
END $tutti$;
CREATE OR REPLACE FUNCTION tutti.definitions(roots oid[], everything boolean, seal text)
RETURNS TABLE (roles text, others text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET quote_all_identifiers = off SET DateStyle = 'ISO, YMD' SET IntervalStyle = iso_8601 SET TimeZone = 'UTC'
SET extra_float_digits = 1 SET bytea_output = hex SET lc_monetary = 'C' SET xmloption = content AS $tutti$
DECLARE
    described jsonb;
BEGIN
    IF tutti.is_sealed('definitions ' || roots::text || ' ' || coalesce(everything::text, 'NULL'), seal) IS NOT TRUE THEN
        RAISE insufficient_privilege USING MESSAGE = 'only a gateway can ask for definitions';
    END IF;
    described := tutti.describe(roots, everything);
    -- Apart: what making the others runs can see what its statement was given, and roles have verifiers.
    RETURN QUERY SELECT jsonb_build_object('first', described -> 'roles', 'later', '[]'::jsonb, 'last', '[]'::jsonb)::text,
        (described - 'roles')::text;
END $tutti$;
COMMENT ON FUNCTION tutti.definitions IS 'What another node must have for these relations and functions to be there too, as statements. The caller must be a gateway.';

-- Whether tables that other nodes have depend on anything but what belongs to themselves: a change may
-- have brought that, and other nodes may lack it.
CREATE OR REPLACE FUNCTION tutti.need_more(relations oid[]) RETURNS boolean
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_generic_plan SET jit = off
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $tutti$
BEGIN
    RETURN (WITH RECURSIVE part (classid, objid) AS (
        SELECT 'pg_class'::regclass::oid, unnest(relations)
        UNION SELECT d.classid, d.objid FROM part p JOIN pg_depend d
            ON d.refclassid = p.classid AND d.refobjid = p.objid AND d.deptype IN ('a', 'i', 'P', 'S')
    ) SELECT EXISTS (SELECT FROM part p JOIN pg_class c ON p.classid = 'pg_class'::regclass AND c.oid = p.objid
            WHERE c.relkind NOT IN ('i', 'I', 't') AND c.oid <> ALL (relations))
        OR EXISTS (SELECT FROM part p JOIN pg_depend d ON d.classid = p.classid AND d.objid = p.objid
            WHERE d.refobjid >= 16384 AND d.refclassid <> 'pg_namespace'::regclass AND NOT EXISTS (
                SELECT FROM part q WHERE q.classid = d.refclassid AND q.objid = d.refobjid)));
END $tutti$;
COMMENT ON FUNCTION tutti.need_more IS 'Whether tables depend on anything but what belongs to themselves.';

-- Before the first table is spread: one after the other. Whether it is the first.
CREATE OR REPLACE FUNCTION tutti.spread_first(seal text) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $tutti$
BEGIN
    IF tutti.is_sealed('spread first', seal) IS NOT TRUE THEN
        RAISE insufficient_privilege USING MESSAGE = 'only a gateway can spread a table';
    END IF;
    -- No client can take this one, but for a superuser.
    LOCK TABLE pg_namespace IN SHARE UPDATE EXCLUSIVE MODE;
    RETURN NOT EXISTS (SELECT FROM tutti.placement p JOIN pg_class c ON c.oid = p.relation
        WHERE p.kind <> 'home');
END $tutti$;
COMMENT ON FUNCTION tutti.spread_first IS 'Waits for others that spread the first table; the caller must be a gateway.';

-- Takes away what this node has of definitions that are not node 1's any more: while all tables were on
-- node 1, it alone was told of changes. As the caller, who is the owner of the schema tutti. Whether there
-- was anything.
CREATE OR REPLACE FUNCTION tutti.drop_stale(wanted jsonb) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $tutti$
DECLARE
    stale text;
    found_any boolean := false;
BEGIN
    -- With rows of the cluster's here, nothing was changed without this node.
    IF EXISTS (SELECT FROM tutti.placement p JOIN pg_class c ON c.oid = p.relation WHERE p.kind <> 'home') THEN
        RETURN false;
    END IF;
    FOR stale IN
        -- They read nothing, and give no values here.
        SELECT format('DROP %s IF EXISTS %I.%I CASCADE', CASE c.relkind WHEN 'v' THEN 'VIEW' ELSE 'SEQUENCE' END,
            n.nspname, c.relname)
        FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE c.relkind IN ('v', 'S') AND c.oid >= 16384 AND n.nspname NOT IN ('tutti', 'information_schema')
            AND n.nspname !~ '^pg_' AND NOT EXISTS (SELECT FROM pg_depend d
                WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype IN ('e', 'i', 'a')
                    AND d.refclassid <> 'pg_namespace'::regclass)
        UNION ALL SELECT h.own ->> 'drop' FROM jsonb_array_elements(tutti.describe('{}', true) -> 'first') h (own)
        WHERE h.own ->> 'drop' IS NOT NULL AND concat(h.own ->> 'probe', ' ', h.own ->> 'make') NOT IN (
            SELECT concat(e ->> 'probe', ' ', e ->> 'make') FROM jsonb_array_elements(wanted -> 'first') e)
    LOOP
        EXECUTE stale;
        found_any := true;
    END LOOP;
    -- Of extensions that are gone by now, the schemas too.
    FOR stale IN
        SELECT format('DROP SCHEMA IF EXISTS %I CASCADE', n.nspname) FROM pg_namespace n
        WHERE n.oid >= 16384 AND n.nspname NOT IN ('tutti', 'public') AND n.nspname !~ '^pg_'
            AND format('EXISTS (SELECT FROM pg_catalog.pg_namespace WHERE nspname = %L)', n.nspname) NOT IN (
                SELECT e ->> 'probe' FROM jsonb_array_elements(wanted -> 'first') e)
            AND NOT EXISTS (SELECT FROM pg_class c WHERE c.relnamespace = n.oid
                AND c.relkind IN ('r', 'p', 'm', 'f'))
            AND NOT EXISTS (SELECT FROM pg_extension e WHERE e.extnamespace = n.oid)
    LOOP
        EXECUTE stale;
        found_any := true;
    END LOOP;
    RETURN found_any;
END $tutti$;

-- As the caller, who is the owner of the schema tutti.
CREATE OR REPLACE FUNCTION tutti.make_parts(parts jsonb, made text[]) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $tutti$
DECLARE
    statement text;
BEGIN
    FOR statement IN
        SELECT s.make FROM jsonb_array_elements(parts) WITH ORDINALITY p (part, position),
            jsonb_array_elements_text(p.part -> 'make') WITH ORDINALITY s (make, position)
        WHERE p.part ->> 'of' = ANY (made) ORDER BY p.position, s.position
    LOOP
        EXECUTE statement;
    END LOOP;
END $tutti$;

-- Whether anything but tables was missing. (Before shape 14 it told nothing.)
DO $tutti$
BEGIN
    IF (SELECT p.prorettype = 'void'::regtype FROM pg_proc p
        WHERE p.oid = to_regprocedure('tutti.make_definitions(text, boolean, text)')) THEN
        DROP FUNCTION tutti.make_definitions(text, boolean, text);
    END IF;
END $tutti$;
CREATE OR REPLACE FUNCTION tutti.make_definitions(definitions text, whatever_can_be boolean, seal text)
RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET check_function_bodies = off SET client_min_messages = error
-- What a text of a definition means, and where what it makes lies, is not for the client's session to say. (Dates and
-- the like are given as every session reads them; the server keeps a domain's default as the session writes it.)
SET array_nulls = on SET xmloption = content SET lc_monetary = 'C' SET transform_null_equals = off SET backslash_quote = safe_encoding
SET default_tablespace = '' SET default_table_access_method = heap SET default_toast_compression = pglz
AS $tutti$
DECLARE
    item jsonb;
    statement text;
    present boolean;
    made text[] := '{}';
    more boolean := false;
    -- So many of those that were made have their parts.
    completed integer := 0;
    waiting jsonb;
    postponed jsonb;
    is_last boolean := false;
BEGIN
    IF tutti.is_sealed(format('make %s %s', whatever_can_be, definitions), seal) IS NOT TRUE THEN
        RAISE insufficient_privilege USING MESSAGE = 'only a gateway can make definitions';
    END IF;
    IF whatever_can_be THEN
        more := tutti.drop_stale(definitions::jsonb);
    END IF;
    -- What is here of a table that was home holds nothing, and need not be what it is on node 1.
    FOR item IN SELECT e FROM jsonb_array_elements(definitions::jsonb -> 'first') e
        WHERE e ->> 'table' IS NOT NULL
    LOOP
        IF to_regclass(item ->> 'table') IS NOT NULL AND NOT EXISTS (
            SELECT FROM tutti.placement p
            WHERE p.relation = to_regclass(item ->> 'table') AND p.kind <> 'home') THEN
            EXECUTE format('DROP TABLE %s CASCADE', item ->> 'table');
        END IF;
    END LOOP;
    -- What names something that is not there yet is tried again behind the rest.
    waiting := definitions::jsonb -> 'first';
    LOOP
        postponed := '[]';
        FOR item IN SELECT * FROM jsonb_array_elements(waiting) LOOP
            EXECUTE 'SELECT ' || (item ->> 'probe') INTO present;
            IF present THEN
                IF item ->> 'essence' IS NOT NULL THEN
                    PERFORM tutti.refuse_another(item);
                END IF;
                CONTINUE;
            END IF;
            IF jsonb_typeof(item -> 'make') <> 'array' THEN
                CONTINUE WHEN whatever_can_be;
                RAISE feature_not_supported USING
                    MESSAGE = format('%s cannot be brought to other nodes', item ->> 'what'),
                    DETAIL = coalesce((item ->> 'because') || '.',
                        'The table, or something that it needs, depends on it.'),
                    HINT = CASE WHEN item ->> 'because' IS NULL
                        THEN 'Leave the table on node 1, or do without what depends on it.'
                        ELSE 'Replicate the other table first (tutti_replicate), or distribute both in one statement: SELECT tutti_distribute(''table'', ''key'', ''other table'', ''key'').' END;
            END IF;
            BEGIN
                FOR statement IN SELECT * FROM jsonb_array_elements_text(item -> 'make') LOOP
                    EXECUTE statement;
                END LOOP;
                made := made || (item ->> 'probe');
                more := more OR item ->> 'table' IS NULL;
            EXCEPTION WHEN OTHERS THEN
                IF NOT whatever_can_be AND (is_last OR SQLSTATE NOT IN (
                    '3F000', '42703', '42704', '42803', '42883', '42P01')) THEN
                    RAISE;
                END IF;
                postponed := postponed || item;
            END;
        END LOOP;
        EXIT WHEN postponed = '[]';
        IF jsonb_array_length(postponed) = jsonb_array_length(waiting) THEN
            EXIT WHEN whatever_can_be;
            -- A view that groups by a key needs it, which is a part of its table.
            is_last := completed = cardinality(made);
            PERFORM tutti.make_parts(definitions::jsonb -> 'later', made[completed + 1:]);
            completed := cardinality(made);
        END IF;
        waiting := postponed;
    END LOOP;
    PERFORM tutti.make_parts(definitions::jsonb -> 'later', made[completed + 1:]);
    PERFORM tutti.make_parts(definitions::jsonb -> 'last', made);
    -- Sequences give values on node 1 only.
    PERFORM setval(s.seqrelid::regclass, CASE WHEN s.seqincrement > 0 THEN s.seqmax ELSE s.seqmin END, true)
    FROM unnest(tutti.changed_relations()) AS o JOIN pg_sequence s ON s.seqrelid = o
    JOIN pg_class c ON c.oid = s.seqrelid
    WHERE c.relnamespace <> 'tutti'::regnamespace AND c.relpersistence <> 't'
        AND pg_sequence_last_value(s.seqrelid::regclass) IS DISTINCT FROM
            CASE WHEN s.seqincrement > 0 THEN s.seqmax ELSE s.seqmin END;
    RETURN more;
END $tutti$;
COMMENT ON FUNCTION tutti.make_definitions IS 'Makes on this node what tutti.definitions of node 1 has told and is not here yet. The caller must be a gateway.';

CREATE OR REPLACE FUNCTION tutti.objections(relation oid) RETURNS SETOF text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $tutti$
    WITH RECURSIVE family (oid) AS (
        SELECT relation UNION SELECT h.inhrelid FROM family f JOIN pg_inherits h ON h.inhparent = f.oid
    ), names (word) AS (
        SELECT lower(c.relname::text) FROM family f JOIN pg_class c ON c.oid = f.oid
    )
    SELECT format('trigger %I on %s runs %s%s', t.tgname, t.tgrelid::regclass, t.tgfoid::regprocedure,
        CASE WHEN p.prosrc ~* '\m(now\s*\(|current_(date|time)|local_?time|transaction_timestamp)'
            THEN ', where now() is the time of the row''s node' ELSE '' END)
    FROM pg_trigger t JOIN family f ON f.oid = t.tgrelid JOIN pg_proc p ON p.oid = t.tgfoid
    WHERE NOT t.tgisinternal AND t.tgenabled <> 'D' AND t.tgparentid = 0
    UNION ALL SELECT format('rule %I on %s', r.rulename, r.ev_class::regclass)
    FROM pg_rewrite r JOIN family f ON f.oid = r.ev_class WHERE r.ev_type <> '1' AND r.ev_enabled <> 'D'
    UNION ALL SELECT format('%s %s names it', CASE p.prokind WHEN 'p' THEN 'procedure' ELSE 'function' END,
        p.oid::regprocedure)
    FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang AND l.lanname NOT IN ('c', 'internal')
    WHERE p.oid >= 16384 AND p.pronamespace <> 'tutti'::regnamespace AND (EXISTS (
            SELECT FROM names n WHERE strpos(lower(p.prosrc), n.word) > 0
                AND n.word = ANY (regexp_split_to_array(lower(p.prosrc), '[^[:alnum:]_$]+')))
        OR EXISTS (SELECT FROM pg_depend d JOIN family f ON f.oid = d.refobjid
            WHERE d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.refclassid = 'pg_class'::regclass))
$tutti$;
COMMENT ON FUNCTION tutti.objections IS 'Code that sees a table, which will be refused or see one node only where the table is on several.';
