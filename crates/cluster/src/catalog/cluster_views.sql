-- What every node says of itself, side by side. Part of the schema tutti. The gateway reads these views as it reads tables
-- that are spread without a key: each node has rows of its own (`CLUSTER_VIEWS` in crates/sql/src/catalog.rs).
--
-- They read with the rights of whoever asks, and so show what PostgreSQL's own views would show there. Columns are named one by
-- one, and are those of all versions: a view that was made by one major version is replaced under the next. OIDs of what
-- users make differ from node to node; so there are names instead.

CREATE OR REPLACE VIEW tutti.this_node AS SELECT c.node FROM tutti.cluster c;
COMMENT ON VIEW tutti.this_node IS 'The number of this node, whatever the session has set.';

CREATE OR REPLACE VIEW tutti.stat_activity WITH (security_invoker) AS
SELECT me.node, a.datname, a.pid, a.leader_pid, a.usename, a.application_name, a.client_addr, a.client_hostname,
    a.client_port, a.backend_start, a.xact_start, a.query_start, a.state_change, a.wait_event_type, a.wait_event, a.state,
    a.backend_xid, a.backend_xmin, a.query_id, a.query, a.backend_type
FROM pg_stat_activity a CROSS JOIN tutti.this_node me;
COMMENT ON VIEW tutti.stat_activity IS 'pg_stat_activity of every node.';

CREATE OR REPLACE VIEW tutti.locks WITH (security_invoker) AS
SELECT me.node, l.locktype, d.datname, n.nspname AS schemaname, c.relname, l.page, l.tuple, l.virtualxid, l.transactionid,
    l.classid, l.objid, l.objsubid, l.virtualtransaction, l.pid, l.mode, l.granted, l.fastpath, l.waitstart
FROM pg_locks l CROSS JOIN tutti.this_node me
LEFT JOIN pg_database d ON d.oid = l.database
LEFT JOIN pg_class c ON c.oid = l.relation AND (l.database = 0 OR d.datname = current_database())
LEFT JOIN pg_namespace n ON n.oid = c.relnamespace;
COMMENT ON VIEW tutti.locks IS 'pg_locks of every node. Relations of other databases have no name here; objid is the node''s own number.';

CREATE OR REPLACE VIEW tutti.stat_user_tables WITH (security_invoker) AS
SELECT me.node, s.schemaname, s.relname, s.seq_scan, s.seq_tup_read, s.idx_scan, s.idx_tup_fetch, s.n_tup_ins,
    s.n_tup_upd, s.n_tup_del, s.n_tup_hot_upd, s.n_live_tup, s.n_dead_tup, s.n_mod_since_analyze, s.n_ins_since_vacuum,
    s.last_vacuum, s.last_autovacuum, s.last_analyze, s.last_autoanalyze, s.vacuum_count, s.autovacuum_count,
    s.analyze_count, s.autoanalyze_count
FROM pg_stat_user_tables s CROSS JOIN tutti.this_node me WHERE s.schemaname <> 'tutti';
COMMENT ON VIEW tutti.stat_user_tables IS 'pg_stat_user_tables of every node.';

CREATE OR REPLACE VIEW tutti.stat_user_indexes WITH (security_invoker) AS
SELECT me.node, s.schemaname, s.relname, s.indexrelname, s.idx_scan, s.idx_tup_read, s.idx_tup_fetch
FROM pg_stat_user_indexes s CROSS JOIN tutti.this_node me WHERE s.schemaname <> 'tutti';
COMMENT ON VIEW tutti.stat_user_indexes IS 'pg_stat_user_indexes of every node.';

-- Values of any type cannot travel; their texts can.
CREATE OR REPLACE VIEW tutti.stats WITH (security_invoker) AS
SELECT me.node, s.schemaname, s.tablename, s.attname, s.inherited, s.null_frac, s.avg_width, s.n_distinct,
    s.most_common_vals::text AS most_common_vals, s.most_common_freqs, s.histogram_bounds::text AS histogram_bounds,
    s.correlation, s.most_common_elems::text AS most_common_elems, s.most_common_elem_freqs, s.elem_count_histogram
FROM pg_stats s CROSS JOIN tutti.this_node me;
COMMENT ON VIEW tutti.stats IS 'pg_stats of every node, values as text.';

-- What another session drops meanwhile has no size.
CREATE OR REPLACE VIEW tutti.table_sizes WITH (security_invoker) AS
SELECT me.node, n.nspname AS schemaname, c.relname, pg_table_size(c.oid) AS table_bytes,
    pg_indexes_size(c.oid) AS index_bytes, pg_total_relation_size(c.oid) AS total_bytes
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace CROSS JOIN tutti.this_node me
WHERE c.relkind IN ('r', 'm') AND n.nspname NOT IN ('pg_catalog', 'information_schema', 'tutti')
    AND n.nspname !~ '^pg_toast';
COMMENT ON VIEW tutti.table_sizes IS 'What tables and materialized views take up on every node, with their indexes. A partitioned table is its partitions.';

-- What nodes other than node 1 add to what PostgreSQL's functions and pg_class say there. A TOAST table is called by its
-- table's name, for its own is another on each node. What has not been counted yet, or is a copy of rows of node 1, adds nothing.
CREATE OR REPLACE VIEW tutti.relation_sizes WITH (security_invoker) AS
SELECT me.node, n.nspname AS schemaname, named.relname, named.oid <> c.oid AS is_toast,
    pg_relation_size(c.oid) AS main_bytes, pg_table_size(c.oid) AS table_bytes, pg_indexes_size(c.oid) AS index_bytes,
    pg_total_relation_size(c.oid) AS total_bytes,
    CASE WHEN p.kind IN ('hash', 'round_robin') THEN c.relpages END AS pages,
    CASE WHEN p.kind IN ('hash', 'round_robin') AND c.reltuples >= 0 THEN c.reltuples END AS tuples
FROM tutti.this_node me JOIN pg_class c ON me.node <> 1
LEFT JOIN pg_class t ON c.relkind = 't' AND t.reltoastrelid = c.oid
LEFT JOIN pg_index i ON i.indexrelid = c.oid
JOIN pg_class named ON named.oid = coalesce(t.oid, c.oid)
JOIN pg_namespace n ON n.oid = named.relnamespace
LEFT JOIN tutti.placements p ON p.relation = coalesce(i.indrelid, named.oid)
WHERE c.relkind IN ('r', 'p', 'm', 'i', 'I', 't') AND n.nspname NOT IN ('information_schema', 'tutti')
    AND n.nspname !~ '^pg_';
COMMENT ON VIEW tutti.relation_sizes IS 'What relations take up on every node but node 1, for the sizes that its own functions are asked for.';

CREATE OR REPLACE VIEW tutti.database_sizes WITH (security_invoker) AS
SELECT me.node, pg_database_size(d.oid) AS bytes
FROM tutti.this_node me JOIN pg_database d ON me.node <> 1 AND d.datname = current_database();
COMMENT ON VIEW tutti.database_sizes IS 'What the database takes up on every node but node 1.';

-- What node 1 says and what the others add to it, by its OIDs. Their names are those of the arguments that PostgreSQL's have.
CREATE OR REPLACE FUNCTION tutti.pg_relation_size(relation regclass, elsewhere jsonb) RETURNS bigint LANGUAGE sql
RETURN pg_relation_size(relation) + coalesce((elsewhere ->> relation::oid::text)::bigint, 0);
CREATE OR REPLACE FUNCTION tutti.pg_table_size(relation regclass, elsewhere jsonb) RETURNS bigint LANGUAGE sql
RETURN pg_table_size(relation) + coalesce((elsewhere ->> relation::oid::text)::bigint, 0);
CREATE OR REPLACE FUNCTION tutti.pg_indexes_size(relation regclass, elsewhere jsonb) RETURNS bigint LANGUAGE sql
RETURN pg_indexes_size(relation) + coalesce((elsewhere ->> relation::oid::text)::bigint, 0);
CREATE OR REPLACE FUNCTION tutti.pg_total_relation_size(relation regclass, elsewhere jsonb) RETURNS bigint LANGUAGE sql
RETURN pg_total_relation_size(relation) + coalesce((elsewhere ->> relation::oid::text)::bigint, 0);
CREATE OR REPLACE FUNCTION tutti.pg_database_size(database name, elsewhere bigint) RETURNS bigint LANGUAGE sql
RETURN pg_database_size(database) + CASE WHEN database = current_database() THEN coalesce(elsewhere, 0) ELSE 0 END;
CREATE OR REPLACE FUNCTION tutti.pg_database_size(database oid, elsewhere bigint) RETURNS bigint LANGUAGE sql
RETURN pg_database_size(database) + CASE WHEN database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
    THEN coalesce(elsewhere, 0) ELSE 0 END;
CREATE OR REPLACE FUNCTION tutti.relpages(relation oid, here integer, elsewhere jsonb) RETURNS integer LANGUAGE sql
RETURN least(here + coalesce((elsewhere ->> relation::text)::bigint, 0), 2147483647)::integer;
CREATE OR REPLACE FUNCTION tutti.reltuples(relation oid, here real, elsewhere jsonb) RETURNS real LANGUAGE sql
RETURN coalesce(CASE WHEN here < 0 THEN 0 ELSE here END + (elsewhere ->> relation::text)::real, here);

-- For psql, among a table's options.
CREATE OR REPLACE FUNCTION tutti.placement_option(relation oid) RETURNS text[] LANGUAGE sql STABLE
RETURN (SELECT ARRAY['distribute by ' || CASE WHEN m.splits IS NOT NULL THEN format('range (%I) split at values (%s)', a.attname,
            (SELECT string_agg(quote_literal(u.split), ', ' ORDER BY u.place) FROM unnest(m.splits) WITH ORDINALITY AS u (split, place)))
        WHEN p.key_attnums IS NOT NULL THEN format('hash (%s)', (SELECT string_agg(quote_ident(c.attname), ', ' ORDER BY k.place)
            FROM unnest(p.key_attnums) WITH ORDINALITY AS k (attnum, place)
            JOIN pg_attribute c ON c.attrelid = p.relation AND c.attnum = k.attnum))
        WHEN p.kind = 'hash' THEN format('hash (%I)', a.attname)
        WHEN p.kind = 'round_robin' THEN 'round robin' WHEN p.kind = 'replicated' THEN 'replicated' WHEN p.kind = 'home' THEN 'home'
        ELSE format('replicated async (%I)', a.attname) END]
    FROM tutti.placements p LEFT JOIN pg_attribute a ON a.attrelid = p.relation AND a.attnum = p.key_attnum
    LEFT JOIN tutti.map m ON m.id = p.map
    WHERE p.relation = placement_option.relation);

-- The extension need not be there, and then no view can name it.
CREATE OR REPLACE FUNCTION tutti.statements() RETURNS TABLE (usename name, datname name, toplevel boolean, queryid bigint,
    query text, plans bigint, total_plan_time float8, calls bigint, total_exec_time float8, min_exec_time float8,
    max_exec_time float8, mean_exec_time float8, stddev_exec_time float8, rows bigint, shared_blks_hit bigint,
    shared_blks_read bigint, shared_blks_dirtied bigint, shared_blks_written bigint, temp_blks_read bigint,
    temp_blks_written bigint, wal_records bigint, wal_fpi bigint, wal_bytes numeric)
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $tutti$
DECLARE
    home name := (SELECT n.nspname FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace
        WHERE e.extname = 'pg_stat_statements');
BEGIN
    IF home IS NULL THEN
        RAISE undefined_object USING
            MESSAGE = format('extension "pg_stat_statements" is not installed on node %s', (SELECT node FROM tutti.this_node)),
            HINT = 'tutti.stat_statements shows what it counts: add it to shared_preload_libraries of every node, then CREATE EXTENSION pg_stat_statements.';
    END IF;
    RETURN QUERY EXECUTE format('SELECT r.rolname, d.datname, s.toplevel, s.queryid, s.query, s.plans, s.total_plan_time,
        s.calls, s.total_exec_time, s.min_exec_time, s.max_exec_time, s.mean_exec_time, s.stddev_exec_time, s.rows,
        s.shared_blks_hit, s.shared_blks_read, s.shared_blks_dirtied, s.shared_blks_written, s.temp_blks_read,
        s.temp_blks_written, s.wal_records, s.wal_fpi, s.wal_bytes
        FROM %I.pg_stat_statements s LEFT JOIN pg_roles r ON r.oid = s.userid LEFT JOIN pg_database d ON d.oid = s.dbid', home);
END $tutti$;
COMMENT ON FUNCTION tutti.statements IS 'pg_stat_statements of this node, where it is.';

CREATE OR REPLACE VIEW tutti.stat_statements WITH (security_invoker) AS
SELECT me.node, s.* FROM tutti.statements() s CROSS JOIN tutti.this_node me;
COMMENT ON VIEW tutti.stat_statements IS 'pg_stat_statements of every node. An error where the extension is not installed.';

