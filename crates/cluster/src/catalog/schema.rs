//! The schema `tutti`, as it is on every node.
//!
//! Owns: its tables, who may access them, the functions by which a client's transaction changes
//! them, and their version.
//! Never: runs anything; `upgrade` does.
//! Start reading at [`CREATE_SCHEMA`]; what a role can do with it is described in `docs/roles.md`.
//!
//! Every node has the whole schema, so that any of them can answer for the cluster and a node that
//! comes back knows its identity. It is changed only inside the global transaction of the DDL that
//! it describes.

/// Version of the tables, rights and functions below. Incremented with every change of them, so
/// that a gateway upgrades what an earlier one created.
pub const SCHEMA_VERSION: u32 = 39;

/// Creates the schema where it is missing, and brings an older one to this version. Runs as one
/// transaction, and again without effect. Refuses to change one of a later version.
///
/// A client's statements reach a node under the client's own role, and so do the gateway's in the
/// client's transaction: creating a table must register it, a transaction on several nodes may have
/// to record a decision. So only the owner (the gateway's role) may write a
/// table of this schema; functions that run as the owner do, and check what they are asked for:
/// - `record_decision` and `register` require a seal that only a gateway can make, see
///   [`Seals`](super::Seals), and `register` also the rights of ALTER TABLE on the table;
/// - `lock_table` requires a seal, and some right to read or write on the table: PostgreSQL allows
///   LOCK TABLE only to roles that may write the whole table, but statements that write one column
///   need it;
/// - `table_rows_as_owner` and `store_rows_as_owner` require a seal, the latter over the rows as well: a write by
///   row has used the client's rights on node 1. They act as the table's owner; where it has user-defined code,
///   `write_rows` stores its rows as the caller;
/// - `as_owner` requires a seal: moving rows runs as the table's owner, who can do nothing else there (`run_as`;
///   called by a role that is no superuser, it has no effect);
/// - `row_text`, `row_output`, `value_output` and `rows_input` read nothing, `refuse_rewritten` only what all may
///   read;
/// - `definitions`, `make_definitions` and `spread_first` require a seal: they run as the owner, for what a table
///   needs may have other owners than the table (see [`share`](super::share));
/// - `lend` and `take_back` require a seal, and `lend` the right to read the tables: they run as the owner, for a
///   table gets a child for as long as a materialized view is filled; rows are stored in it as the table's owner;
/// - `make_unique`, `make_reference`, `drain_entries` (by `begin_drain`), `keep_unique`, `keep_reference`,
///   `check_references`, `free_references` and `bind_references` require a seal, and the first two also the rights of the
///   table's owner: they keep what no client may write, the entries of unique indexes and foreign keys that hold over all nodes; `forget_entries` drops those of
///   what is gone; `entries_of_rows` reads a table as the caller; `kept_of`, `has_notes`, `place_of_reference` and
///   `wanted_references` read what all may;
/// - `act_on_rows` requires a seal: what a foreign key does to rows it does as their table's owner;
/// - `serve` requires a seal, for it says which backends belong to which gateway;
/// - `give_warrant` requires a seal: the next change of this node's schema is a gateway's (`guard.sql`);
///   `use_warrant`, `use_lone_warrant` and `end_warrants` revoke that;
/// - `note_change`, `forget_dropped`, `forget_changed` and `insert_ticket` take no arguments, and calling
///   them without need changes nothing that is relied on.
///
/// - `statements`, the views that show what a node says of itself, and what adds sizes up (`pg_table_size` and the like)
///   read as who asks;
/// - `mark`, `touched`, `changes` and `ties_of_changes` (with what they call) tell a transaction only
///   what it has done itself;
/// - `declare` requires a seal and the rights of the function's owner, `end_declaration` a seal;
/// - `keep_own_request` requires a seal: what a request has led to is a role's own (the other functions for requests
///   are the owner's).
///
/// Row security keeps out members of `pg_read_all_data` and `pg_write_all_data`, and what default
/// privileges have granted to others is revoked.
pub const CREATE_SCHEMA: &str = concat!(
    "
SET client_min_messages = warning;
SELECT pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
LOCK TABLE pg_catalog.pg_namespace IN SHARE UPDATE EXCLUSIVE MODE;
CREATE SCHEMA IF NOT EXISTS tutti;
DO $tutti$
BEGIN
    IF pg_catalog.to_regclass('tutti.secret') IS NOT NULL THEN
        IF EXISTS (SELECT FROM tutti.secret s WHERE s.shape OPERATOR(pg_catalog.>) 39) THEN
            RAISE EXCEPTION 'a later version of Tutti has changed the schema \"tutti\"'
                USING ERRCODE = '55000', HINT = 'Run that version, or a later one: this one does not know the tables as they are now.';
        END IF;
    END IF;
END $tutti$;
GRANT USAGE ON SCHEMA tutti TO PUBLIC;
COMMENT ON SCHEMA tutti IS 'Tutti: which rows live on which node, and what was decided about transactions over several nodes. Changed by the gateway only.';

CREATE TABLE IF NOT EXISTS tutti.cluster (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    name text NOT NULL,
    id uuid NOT NULL,
    node integer NOT NULL CHECK (node BETWEEN 1 AND 65535)
);
ALTER TABLE tutti.cluster ADD COLUMN IF NOT EXISTS home_by_default boolean;
COMMENT ON COLUMN tutti.cluster.home_by_default IS 'Whether definitions are on node 1 alone until a table is spread; otherwise all nodes have all of them.';
COMMENT ON TABLE tutti.cluster IS 'Who this server is: its cluster and its number there. Gateways refuse a server that is somebody else.';

CREATE TABLE IF NOT EXISTS tutti.node (
    id integer PRIMARY KEY CHECK (id BETWEEN 1 AND 65535)
);
COMMENT ON TABLE tutti.node IS 'The nodes of the cluster. Their addresses are in the configuration of each gateway.';

CREATE TABLE IF NOT EXISTS tutti.map (
    id integer PRIMARY KEY,
    key_family text NOT NULL
);
ALTER TABLE tutti.map ADD COLUMN IF NOT EXISTS splits text[];
COMMENT ON COLUMN tutti.map.splits IS 'Where ranges of keys begin; bucket i is range i. NULL: a key''s bucket is by its hash.';
COMMENT ON TABLE tutti.map IS 'Bucket maps. Tables with the same map are colocated: equal keys are on one node.';

CREATE TABLE IF NOT EXISTS tutti.bucket (
    map integer NOT NULL REFERENCES tutti.map,
    bucket integer NOT NULL CHECK (bucket BETWEEN 0 AND 1023),
    node integer NOT NULL REFERENCES tutti.node,
    PRIMARY KEY (map, bucket)
);
COMMENT ON TABLE tutti.bucket IS 'Which node holds which of the 1024 slices of the hash space, or ranges of keys, per map.';

CREATE TABLE IF NOT EXISTS tutti.placement (
    relation oid PRIMARY KEY,
    kind text NOT NULL,
    key_attnum smallint,
    key_type oid,
    key_typmod integer,
    map integer REFERENCES tutti.map
);
ALTER TABLE tutti.placement ADD COLUMN IF NOT EXISTS key_attnums smallint[],
    ADD COLUMN IF NOT EXISTS key_types oid[], ADD COLUMN IF NOT EXISTS key_typmods integer[],
    ADD COLUMN IF NOT EXISTS computed jsonb;
-- Those of an earlier shape knew no tables that are replicated asynchronously.
ALTER TABLE tutti.placement DROP CONSTRAINT IF EXISTS placement_kind_check,
    DROP CONSTRAINT IF EXISTS placement_check, DROP CONSTRAINT IF EXISTS placement_check1,
    DROP CONSTRAINT IF EXISTS placement_check2, DROP CONSTRAINT IF EXISTS placement_check3,
    DROP CONSTRAINT IF EXISTS placement_of_key, DROP CONSTRAINT IF EXISTS placement_of_several;
ALTER TABLE tutti.placement
    ADD CONSTRAINT placement_kind_check
        CHECK (kind IN ('hash', 'round_robin', 'replicated', 'async', 'async_pending', 'async_ending', 'home')),
    ADD CONSTRAINT placement_of_key CHECK (
        CASE WHEN kind = 'hash' AND key_attnums IS NOT NULL
            THEN key_attnum IS NULL AND key_type IS NULL AND key_typmod IS NULL AND map IS NOT NULL
                AND cardinality(key_attnums) > 1 AND cardinality(key_types) = cardinality(key_attnums)
                AND cardinality(key_typmods) = cardinality(key_attnums)
                AND array_position(key_attnums, NULL::smallint) IS NULL
            WHEN kind IN ('hash', 'async', 'async_pending', 'async_ending')
            THEN key_attnum IS NOT NULL AND key_type IS NOT NULL AND key_typmod IS NOT NULL AND map IS NOT NULL
            ELSE key_attnum IS NULL AND key_type IS NULL AND key_typmod IS NULL AND map IS NULL
        END),
    ADD CONSTRAINT placement_of_several CHECK (
        (key_attnums IS NULL) = (key_types IS NULL) AND (key_attnums IS NULL) = (key_typmods IS NULL)
        AND (key_attnums IS NULL OR kind = 'hash'));
COMMENT ON TABLE tutti.placement IS 'Where the rows of each table are. Tables are named by their oid on this server, keys by their attribute number, so that renaming needs no change here. Tables that are missing count as kind home: node 1 has all that matters.';
COMMENT ON COLUMN tutti.placement.key_attnums IS 'The columns of a key of several, in its order; the key''s single column is in key_attnum otherwise.';
COMMENT ON COLUMN tutti.placement.computed IS 'Of generated columns of the key: attribute number, expression, the columns that are in it by their names there, and whether the column has its value as it is, not cast.';
COMMENT ON COLUMN tutti.placement.key_type IS 'Type of the key when it was registered: changing it would leave rows where nobody looks.';

-- For queries of a client's session, where row_security = off would be an error at the table's policy.
CREATE OR REPLACE VIEW tutti.placements AS SELECT * FROM tutti.placement;
COMMENT ON VIEW tutti.placements IS 'Where the rows of each table are, whatever the session has set.';

CREATE TABLE IF NOT EXISTS tutti.declaration (
    routine oid PRIMARY KEY,
    kind text NOT NULL CHECK (kind IN ('row', 'replicated', 'home'))
);
ALTER TABLE tutti.declaration ADD COLUMN IF NOT EXISTS of_text text;
COMMENT ON COLUMN tutti.declaration.of_text IS 'What the function was when this was said of it: it does not hold for another text.';
COMMENT ON TABLE tutti.declaration IS 'What somebody who knows a function has said of it (tutti_function): where it may run. Functions are named by their oid on this server; node 1''s rows count.';

CREATE TABLE IF NOT EXISTS tutti.change (
    weight bigint NOT NULL DEFAULT 1
);
COMMENT ON TABLE tutti.change IS 'One row per change of the schema or of a placement; the sum is the version of the catalog. Rows are added, never updated, so that two changes do not wait for each other.';

CREATE TABLE IF NOT EXISTS tutti.seen (
    node integer PRIMARY KEY,
    timeline text COLLATE pg_catalog.\"C\" NOT NULL
);
COMMENT ON TABLE tutti.seen IS 'The timeline on which another node was last seen, of those that have several hosts. A server of an earlier one is a former primary, whose place another has taken. Where it is not (the node was made anew): delete the row, on all nodes.';

CREATE TABLE IF NOT EXISTS tutti.decision (
    gid text PRIMARY KEY,
    decision text NOT NULL CHECK (decision IN ('committed', 'aborted')),
    at timestamptz NOT NULL DEFAULT pg_catalog.now()
);
COMMENT ON TABLE tutti.decision IS 'What was decided about global transactions whose anchor is this node. The primary key is the arbitration: whoever inserts first decides. Removed when no node needs it any more.';

CREATE UNLOGGED TABLE IF NOT EXISTS tutti.ticket (
    gid text NOT NULL
);
COMMENT ON TABLE tutti.ticket IS 'Every SERIALIZABLE transaction over several nodes inserts a row on each of them, which conflicts with the sentinel that has read the table. Rows say nothing and are removed by and by.';

CREATE TABLE IF NOT EXISTS tutti.audit (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    at timestamptz NOT NULL DEFAULT pg_catalog.now(),
    seconds float8 NOT NULL,
    findings text[] NOT NULL,
    unchecked text[] NOT NULL
);
COMMENT ON TABLE tutti.audit IS 'What the last audit in the background has found, on node 1.';

CREATE SEQUENCE IF NOT EXISTS tutti.incarnation;
COMMENT ON SEQUENCE tutti.incarnation IS 'Drawn on node 1 by every gateway when it starts; part of the identifiers of its transactions.';

CREATE TABLE IF NOT EXISTS tutti.secret (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    shape integer NOT NULL,
    secret bytea NOT NULL
);
COMMENT ON TABLE tutti.secret IS 'What gateways prove themselves by to the functions of this schema, and the version of the schema. Nobody else may read it.';
INSERT INTO tutti.secret (shape, secret) VALUES (0, pg_catalog.sha256(pg_catalog.convert_to(
    pg_catalog.gen_random_uuid()::pg_catalog.text || pg_catalog.gen_random_uuid(), 'UTF8')))
ON CONFLICT DO NOTHING;

CREATE OR REPLACE FUNCTION tutti.seal_of(message text) RETURNS text
LANGUAGE plpgsql STABLE AS $tutti$
BEGIN
    RETURN (SELECT pg_catalog.encode(pg_catalog.sha256(s.secret OPERATOR(pg_catalog.||)
        pg_catalog.sha256(s.secret OPERATOR(pg_catalog.||) pg_catalog.convert_to(message, 'UTF8'))), 'hex')
        FROM tutti.secret s);
END $tutti$;
COMMENT ON FUNCTION tutti.seal_of IS 'The hash over the secret by which gateways prove themselves. For the functions of this schema: nobody else can read the secret.';

CREATE OR REPLACE FUNCTION tutti.is_sealed(message text, seal text) RETURNS boolean
LANGUAGE plpgsql STABLE AS $tutti$
BEGIN
    RETURN tutti.seal_of(pg_catalog.concat(pg_catalog.pg_backend_pid(), ' ',
        pg_catalog.encode(pg_catalog.timestamptz_send(pg_catalog.now()), 'hex'), ' ', message))
        OPERATOR(pg_catalog.=) seal;
END $tutti$;
COMMENT ON FUNCTION tutti.is_sealed IS 'Whether a gateway has made this seal, for this message, this backend and this transaction. For the functions of this schema.';

CREATE OR REPLACE FUNCTION tutti.record_decision(decided text, seal text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $tutti$
BEGIN
    IF tutti.is_sealed('decision ' || decided, seal) IS NOT TRUE THEN
        RAISE insufficient_privilege USING MESSAGE = 'only a gateway can record a decision';
    END IF;
    INSERT INTO tutti.decision (gid, decision) VALUES (decided, 'committed');
END $tutti$;
COMMENT ON FUNCTION tutti.record_decision IS 'Records that the transaction of this identifier is committed, if the transaction that calls it commits.';

DROP FUNCTION IF EXISTS tutti.register(text, text, text, text, integer, text, text);
CREATE OR REPLACE FUNCTION tutti.register(named_schema text, named_table text, new_kind text,
    new_key text, new_map integer, new_family text, new_splits text, seal text) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
-- As expressions are printed, which others read.
SET quote_all_identifiers = off SET DateStyle = 'ISO, YMD' SET IntervalStyle = iso_8601 SET TimeZone = 'UTC'
SET extra_float_digits = 1 SET bytea_output = hex AS $tutti$
DECLARE
    message text;
    found oid;
    found_owner oid;
    map_splits text[] := CASE WHEN new_splits <> '' THEN new_splits::text[] END;
    is_several boolean := new_family = 'several';
    key_names text[] := CASE WHEN is_several THEN new_key::text[] ELSE ARRAY[new_key] END;
    acting name := CASE current_setting('role') WHEN 'none' THEN session_user
        ELSE current_setting('role') END;
BEGIN
    SELECT 'placement ' || string_agg(octet_length(part) || ':' || part, '' ORDER BY position)
        INTO message
        FROM unnest(ARRAY[named_schema, named_table, new_kind, new_key, new_map::text, new_family, new_splits])
            WITH ORDINALITY AS u (part, position);
    IF tutti.is_sealed(message, seal) IS NOT TRUE THEN
        RAISE insufficient_privilege USING MESSAGE = 'only a gateway can register a table';
    END IF;
    SELECT c.oid, c.relowner INTO found, found_owner
        FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE n.nspname = named_schema AND c.relname = named_table;
    IF found IS NULL THEN
        RETURN false;
    END IF;
    IF NOT pg_has_role(acting, found_owner, 'USAGE') THEN
        RAISE insufficient_privilege
            USING MESSAGE = format('must be owner of table %s', named_table);
    END IF;
    IF new_kind IN ('hash', 'async', 'async_pending', 'async_ending') THEN
        -- Whoever comes second waits for the first and finds the same map: its content depends on
        -- the nodes only.
        INSERT INTO tutti.map (id, key_family, splits) VALUES (new_map, new_family, map_splits)
            ON CONFLICT DO NOTHING;
        IF NOT EXISTS (SELECT FROM tutti.map m WHERE m.id = new_map AND m.key_family = new_family
            AND m.splits IS NOT DISTINCT FROM map_splits) THEN
            -- The number of a map of ranges is a hash of where they begin.
            RAISE program_limit_exceeded USING MESSAGE = 'other ranges have the same number as these',
                HINT = 'Let one of the ranges begin at another value.';
        END IF;
        -- Ranges are given to the nodes in order; buckets that are no ranges are as those of a hash.
        INSERT INTO tutti.bucket (map, bucket, node)
            SELECT new_map, b, nodes.ids[1 + b * cardinality(nodes.ids)
                / CASE WHEN b <= cardinality(map_splits) THEN cardinality(map_splits) + 1 ELSE 1024 END]
            FROM generate_series(0, 1023) AS b,
                (SELECT array_agg(id ORDER BY id) AS ids FROM tutti.node) AS nodes
            WHERE NOT EXISTS (SELECT FROM tutti.bucket WHERE map = new_map)
            ON CONFLICT DO NOTHING;
    END IF;
    -- A key that is missing becomes NULL, which the table's own CHECK refuses.
    INSERT INTO tutti.placement AS p (relation, kind, key_attnum, key_type, key_typmod, key_attnums, key_types, key_typmods,
            map, computed)
        SELECT found, new_kind, CASE WHEN NOT is_several THEN k.attnums[1] END, CASE WHEN NOT is_several THEN k.types[1] END,
            CASE WHEN NOT is_several THEN k.typmods[1] END, CASE WHEN is_several THEN k.attnums END,
            CASE WHEN is_several THEN k.types END, CASE WHEN is_several THEN k.typmods END,
            CASE WHEN new_kind IN ('hash', 'async', 'async_pending', 'async_ending') THEN new_map END,
            -- Printing an expression opens its table, which the caller's transaction has locked: readers of the catalog must not.
            (SELECT jsonb_agg(jsonb_build_object('column', a.attnum, 'expression', pg_get_expr(d.adbin, d.adrelid),
                    'exact', d.adbin::text !~ '^\\{FUNCEXPR [^{(]*:funcformat 2 |:(relabelformat|coerceformat|coercionformat|convertformat) 2 :location -?[0-9]+\\}$'
                        -- Compared, the expression is by the collation of what it is made of, and the column by its own.
                        AND (a.attcollation = 0 OR NOT EXISTS (SELECT FROM pg_depend x JOIN pg_attribute o
                            ON o.attrelid = x.refobjid AND o.attnum = x.refobjsubid
                            WHERE x.classid = 'pg_attrdef'::regclass AND x.objid = d.oid AND x.refclassid = 'pg_class'::regclass
                                AND x.refobjid = found AND x.refobjsubid > 0 AND x.refobjsubid <> a.attnum
                                AND o.attcollation <> ALL (ARRAY[0::oid, a.attcollation]))),
                    'names', (SELECT coalesce(jsonb_object_agg(o.attname, o.attnum), '{}') FROM pg_depend x JOIN pg_attribute o
                        ON o.attrelid = x.refobjid AND o.attnum = x.refobjsubid
                        WHERE x.classid = 'pg_attrdef'::regclass AND x.objid = d.oid AND x.refclassid = 'pg_class'::regclass
                            AND x.refobjid = found AND x.refobjsubid > 0 AND x.refobjsubid <> a.attnum)))
                FROM unnest(k.attnums) AS u (attnum) JOIN pg_attribute a ON a.attrelid = found AND a.attnum = u.attnum
                JOIN pg_attrdef d ON d.adrelid = found AND d.adnum = a.attnum
                WHERE a.attgenerated = 's')
        FROM (SELECT array_agg(a.attnum ORDER BY u.place) AS attnums, array_agg(a.atttypid ORDER BY u.place) AS types,
                array_agg(a.atttypmod ORDER BY u.place) AS typmods
            FROM unnest(key_names) WITH ORDINALITY AS u (name, place) LEFT JOIN pg_attribute a
                ON a.attrelid = found AND new_kind IN ('hash', 'async', 'async_pending', 'async_ending') AND a.attname = u.name
                    AND NOT a.attisdropped) AS k
        ON CONFLICT (relation) DO UPDATE SET kind = excluded.kind, map = excluded.map,
            key_attnum = excluded.key_attnum, key_type = excluded.key_type,
            key_typmod = excluded.key_typmod, key_attnums = excluded.key_attnums,
            key_types = excluded.key_types, key_typmods = excluded.key_typmods, computed = excluded.computed;
    RETURN true;
END $tutti$;
COMMENT ON FUNCTION tutti.register IS 'Says where the rows of a table are; false if there is no such table. The role must be the owner of the table, and the caller a gateway.';

CREATE OR REPLACE FUNCTION tutti.note_change() RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $tutti$
BEGIN
    INSERT INTO tutti.change DEFAULT VALUES;
END $tutti$;
COMMENT ON FUNCTION tutti.note_change IS 'Makes the version of the catalog grow.';

CREATE OR REPLACE FUNCTION tutti.forget_dropped() RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $tutti$
    DELETE FROM tutti.placement p
    WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_class c WHERE c.oid = p.relation);
    DELETE FROM tutti.declaration d
    WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_proc p WHERE p.oid = d.routine)
$tutti$;
COMMENT ON FUNCTION tutti.forget_dropped IS 'Removes the registrations of tables that are gone.';

CREATE OR REPLACE FUNCTION tutti.insert_ticket() RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $tutti$
BEGIN
    INSERT INTO tutti.ticket (gid) VALUES ('');
END $tutti$;
COMMENT ON FUNCTION tutti.insert_ticket IS 'Makes a SERIALIZABLE transaction visible to the sentinel of this node.';

CREATE OR REPLACE FUNCTION tutti.lock_table(named_schema text, named_table text, lock_mode text,
    seal text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $tutti$
DECLARE
    message text;
    found oid;
    found_kind pg_catalog.\"char\";
    acting name := CASE current_setting('role') WHEN 'none' THEN session_user
        ELSE current_setting('role') END;
BEGIN
    SELECT 'lock ' || string_agg(octet_length(part) || ':' || part, '' ORDER BY position)
        INTO message
        FROM unnest(ARRAY[named_schema, named_table, lock_mode])
            WITH ORDINALITY AS u (part, position);
    IF tutti.is_sealed(message, seal) IS NOT TRUE
        OR lock_mode NOT IN ('SHARE', 'SHARE ROW EXCLUSIVE') THEN
        RAISE insufficient_privilege USING MESSAGE = 'only a gateway can lock a table this way';
    END IF;
    SELECT c.oid, c.relkind INTO found, found_kind
        FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE n.nspname = named_schema AND c.relname = named_table;
    IF found IS NULL THEN
        RAISE undefined_table
            USING MESSAGE = format('relation \"%s.%s\" does not exist', named_schema, named_table);
    END IF;
    IF NOT (has_any_column_privilege(acting, found, 'SELECT, INSERT, UPDATE')
        OR has_table_privilege(acting, found, 'DELETE, TRUNCATE')) THEN
        RAISE insufficient_privilege USING MESSAGE = format('permission denied for %s %s',
            CASE found_kind WHEN 'v' THEN 'view' ELSE 'table' END, named_table);
    END IF;
    EXECUTE format('LOCK TABLE %I.%I IN %s MODE', named_schema, named_table, lock_mode);
END $tutti$;
COMMENT ON FUNCTION tutti.lock_table IS 'LOCK TABLE for a statement of a client''s that writes a replicated table, under a role that may read or write some of it. The caller must be a gateway.';

CREATE OR REPLACE FUNCTION tutti.keep_rights(tables text, seal text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $tutti$
DECLARE
    kept_relations oid[];
BEGIN
    IF tutti.is_sealed('keep rights ' || tables, seal) IS NOT TRUE THEN
        RAISE insufficient_privilege USING MESSAGE = 'only a gateway can lock a table this way';
    END IF;
    -- Partitions, children and the columns' sequences are moved with their table.
    WITH RECURSIVE family AS (
        SELECT u.oid FROM unnest(string_to_array(tables, ',')::oid[]) AS u (oid)
        UNION
        SELECT i.inhrelid FROM family f JOIN pg_inherits i ON i.inhparent = f.oid
    ), kept AS (
        SELECT f.oid FROM family f
        UNION
        SELECT d.objid FROM family f JOIN pg_depend d ON d.refobjid = f.oid
            AND d.refclassid = 'pg_class'::regclass AND d.classid = 'pg_class'::regclass
            JOIN pg_class s ON s.oid = d.objid AND s.relkind = 'S'
    )
    SELECT array_agg(k.oid) INTO kept_relations FROM kept k;
    PERFORM FROM pg_class c WHERE c.oid = ANY (kept_relations) FOR UPDATE;
    PERFORM FROM pg_attribute a WHERE a.attrelid = ANY (kept_relations) FOR UPDATE;
END $tutti$;
COMMENT ON FUNCTION tutti.keep_rights IS 'Lets GRANT and REVOKE of these tables, which lock no table, wait for the end of the transaction. The caller must be a gateway.';

",
    include_str!("one_gateway.sql"),
    include_str!("guard.sql"),
    include_str!("share/definitions.sql"),
    include_str!("by_row.sql"),
    include_str!("unseen.sql"),
    include_str!("lending.sql"),
    include_str!("moment.sql"),
    include_str!("entries.sql"),
    include_str!("unique.sql"),
    include_str!("references.sql"),
    include_str!("changes.sql"),
    include_str!("cluster_views.sql"),
    include_str!("requests.sql"),
    "
DO $tutti$
DECLARE
    given record;
BEGIN
    FOR given IN
        SELECT DISTINCT 'TABLE' AS what, c.oid::regclass::text AS name,
            CASE g.grantee WHEN 0 THEN 'PUBLIC' ELSE g.grantee::regrole::text END AS grantee
        FROM pg_class c CROSS JOIN LATERAL aclexplode(c.relacl) AS g
        WHERE c.relnamespace = 'tutti'::regnamespace AND g.grantee <> c.relowner
            AND c.relkind IN ('r', 'S', 'v')
        UNION SELECT 'FUNCTION', p.oid::regprocedure::text,
            CASE g.grantee WHEN 0 THEN 'PUBLIC' ELSE g.grantee::regrole::text END
        FROM pg_proc p CROSS JOIN LATERAL aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) AS g
        WHERE p.pronamespace = 'tutti'::regnamespace AND g.grantee <> p.proowner
    LOOP
        EXECUTE format('REVOKE ALL ON %s %s FROM %s', given.what, given.name, given.grantee);
    END LOOP;
    FOR given IN SELECT oid::regclass::text AS name FROM pg_class
        WHERE relnamespace = 'tutti'::regnamespace AND relkind = 'r' AND NOT relrowsecurity
    LOOP
        EXECUTE format('ALTER TABLE %s ENABLE ROW LEVEL SECURITY', given.name);
    END LOOP;
    FOR given IN SELECT c.oid::regclass::text AS name FROM pg_class c
        WHERE c.relnamespace = 'tutti'::regnamespace
            AND c.relname IN ('cluster', 'node', 'map', 'bucket', 'placement', 'declaration', 'change', 'unique_index', 'reference')
            AND NOT EXISTS (SELECT FROM pg_policy p WHERE p.polrelid = c.oid)
    LOOP
        EXECUTE format('CREATE POLICY readable ON %s FOR SELECT USING (true)', given.name);
    END LOOP;
END $tutti$;
GRANT SELECT ON tutti.cluster, tutti.node, tutti.map, tutti.bucket, tutti.placement,
    tutti.declaration, tutti.change, tutti.unique_index, tutti.reference, tutti.kept, tutti.placements, tutti.this_node, tutti.stat_activity, tutti.locks,
    tutti.stat_user_tables, tutti.stat_user_indexes, tutti.stats, tutti.table_sizes, tutti.stat_statements,
    tutti.relation_sizes, tutti.database_sizes TO PUBLIC;
GRANT EXECUTE ON FUNCTION tutti.record_decision, tutti.register, tutti.note_change,
    tutti.forget_dropped, tutti.insert_ticket, tutti.lock_table, tutti.keep_rights, tutti.definitions,
    tutti.make_definitions, tutti.objections, tutti.row_text, tutti.row_output, tutti.rows_input, tutti.value_output,
    tutti.table_rows, tutti.table_rows_as_owner, tutti.write_rows, tutti.held, tutti.shared_definitions,
    tutti.definitions_before, tutti.objects_before, tutti.is_own, tutti.names_in_code, tutti.deferred, tutti.schema_counts, tutti.settings_now,
    tutti.other_tables, tutti.serve, tutti.count, tutti.proof, tutti.mark, tutti.marked, tutti.compare, tutti.touched, tutti.declare, tutti.end_declaration, tutti.text_of,
    tutti.temporary_code, tutti.temporary_types, tutti.changed_relations, tutti.changed_oids, tutti.changes,
    tutti.ties_of_changes, tutti.computed_problem, tutti.forget_changed, tutti.need_more,
    tutti.spread_first, tutti.is_code, tutti.has_code, tutti.runs_code, tutti.turn_triggers_off, tutti.store_rows,
    tutti.store_rows_as_owner, tutti.refuse_comparison, tutti.refuse_rewritten, tutti.as_owner, tutti.run_work,
    tutti.run_step, tutti.run_with_rows, tutti.changed_beside,
    tutti.is_clients, tutti.have_run_at_home, tutti.refuse_hidden, tutti.is_forced_on_owner, tutti.query_of_rows, tutti.give_warrant, tutti.use_warrant,
    tutti.use_lone_warrant, tutti.end_warrants, tutti.make_unique, tutti.begin_drain, tutti.drain_entries, tutti.keep_unique,
    tutti.entries_of_rows, tutti.forget_entries, tutti.unique_problem, tutti.kept_of, tutti.has_notes, tutti.wanted_references,
    tutti.place_of_reference, tutti.make_reference, tutti.keep_reference, tutti.act_on_rows, tutti.check_references, tutti.free_references, tutti.bind_references, tutti.reference_problem, tutti.materialized_view, tutti.lend, tutti.take_back,
    tutti.unfinished, tutti.of_moment, tutti.statements, tutti.pg_relation_size, tutti.pg_table_size,
    tutti.pg_indexes_size, tutti.pg_total_relation_size, tutti.pg_database_size(name, bigint),
    tutti.pg_database_size(oid, bigint), tutti.relpages, tutti.reltuples, tutti.placement_option, tutti.keep_own_request TO PUBLIC;
SELECT tutti.set_guard();
UPDATE tutti.secret SET shape = 39;
"
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schema_says_its_own_version() {
        assert!(CREATE_SCHEMA.contains(&format!("SET shape = {SCHEMA_VERSION};")));
        assert!(
            CREATE_SCHEMA.contains(&format!("s.shape OPERATOR(pg_catalog.>) {SCHEMA_VERSION})"))
        );
    }

    /// A gateway brings to its shape what an earlier one has made, and nothing that has the same number.
    #[test]
    fn another_schema_has_another_version() {
        // FNV-1a (Fowler, Noll, Vo), of 64 bits.
        let print = CREATE_SCHEMA.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        assert_eq!(
            (SCHEMA_VERSION, format!("{print:016x}")),
            (39, "1b929bb246e38d3a".to_owned()),
            "the schema has changed: increment SCHEMA_VERSION, where it stands in the SQL too, and put both here"
        );
    }
}
