//! Reading what user-defined code there is, from node 1: functions, operators, types, and what tables
//! carry.
//!
//! Owns: the queries, and how their answers become a [`Code`]. What is stored as a tree (conditions,
//! defaults, views) is not read: `pg_depend` says which user-defined objects it refers to, and the
//! OIDs of built-in functions are in the tree. Bodies that are text are read by
//! `tutti_sql::closure`.
//! Never: decides what code means. Locks no table.
//! Start reading at [`read`].

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use tutti_sql::closure::{
    Attached, AttachedKind, Body, BuiltIn, BuiltInCode, Code, Declaration, FunctionCode, KeyColumn,
    OperatorCode, TypeCode, TypeKind, Use, WrittenWith, events, names_accounting,
};

use super::folding::folds_code;
use super::rows::Answer;
use crate::error::GatewayError;

/// How many statements [`queries`] has.
pub(super) const QUERIES: usize = 9;

/// Printing a body that is stored parsed locks its tables. Where another session has locked one in
/// ACCESS EXCLUSIVE mode, or waits for that, the text read instead is no SQL: the function is opaque
/// for now.
pub(super) const UNREAD_BODY: &str = "SELECT 1 FROM";

/// Of the gateway's own functions, which all may call, those that run statements are included, as that and nothing
/// else.
const FUNCTIONS: &str = "SELECT p.oid, n.nspname, p.proname, l.lanname, p.provolatile = 'i',
    p.prokind = 'a', CASE WHEN n.nspname = 'tutti' THEN 'BEGIN EXECUTE statement; END'
        WHEN p.prosqlbody IS NULL THEN p.prosrc
        WHEN EXISTS (SELECT FROM pg_depend d JOIN pg_locks k ON k.relation = d.refobjid
            WHERE d.classid = 'pg_proc'::regclass AND d.objid = p.oid
                AND d.refclassid = 'pg_class'::regclass AND k.locktype = 'relation'
                AND k.mode = 'AccessExclusiveLock' AND k.pid <> pg_backend_pid())
        THEN 'SELECT 1 FROM' ELSE pg_get_function_sqlbody(p.oid) END,
    -- Those of OUT parameters and of a table's columns too.
    coalesce(array_to_string(p.proallargtypes, ' '), p.proargtypes::text),
    p.prorettype, 1 BETWEEN p.pronargs - p.pronargdefaults AND p.pronargs,
    (SELECT substr(s, 13) FROM unnest(p.proconfig) AS s WHERE s LIKE 'search\\_path=%'),
    (SELECT e.extname FROM pg_depend d JOIN pg_extension e ON e.oid = d.refobjid
     WHERE d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e'
        AND d.refclassid = 'pg_extension'::regclass),
    (SELECT d.kind FROM tutti.declaration d WHERE d.routine = p.oid
        AND (d.of_text IS NULL OR d.of_text = tutti.text_of(p.oid))), array_to_string(p.proconfig, ' '),
    p.prosecdef OR EXISTS (SELECT FROM unnest(p.proconfig) AS s WHERE s LIKE 'role=%' OR s LIKE 'session\\_authorization=%')
FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
JOIN pg_language l ON l.oid = p.prolang
WHERE p.oid >= 16384
    AND (n.nspname <> 'tutti' OR p.proname = ANY ('{run_work,run_step,run_with_rows,store_rows,write_rows,table_rows}'));";

/// What functions refer to besides their text: aggregates their functions and the types of their states, defaults
/// of arguments, and bodies that were parsed at creation. Function, what it refers to, and whether that is a type.
const FUNCTIONS_USES: &str = "SELECT a.aggfnoid::oid, f, false FROM pg_aggregate a,
    unnest(ARRAY[a.aggtransfn, a.aggfinalfn, a.aggcombinefn, a.aggserialfn, a.aggdeserialfn,
        a.aggmtransfn, a.aggminvtransfn, a.aggmfinalfn]::oid[]) AS f
WHERE a.aggfnoid >= 16384 AND f <> 0
UNION ALL SELECT a.aggfnoid::oid, t, true FROM pg_aggregate a, unnest(ARRAY[a.aggtranstype, a.aggmtranstype]) AS t
WHERE a.aggfnoid >= 16384 AND t >= 16384
UNION ALL SELECT d.objid, d.refobjid, d.refclassid = 'pg_type'::regclass FROM pg_depend d
WHERE d.classid = 'pg_proc'::regclass AND d.refclassid IN ('pg_proc'::regclass, 'pg_type'::regclass)
    AND d.objid >= 16384 AND d.refobjid >= 16384 AND d.deptype = 'n'
UNION ALL SELECT d.objid, o.oprcode::oid, false FROM pg_depend d JOIN pg_operator o ON o.oid = d.refobjid
WHERE d.classid = 'pg_proc'::regclass AND d.refclassid = 'pg_operator'::regclass
    AND d.objid >= 16384 AND d.refobjid >= 16384 AND d.deptype = 'n'
UNION ALL SELECT p.oid, m[1]::oid, false
FROM pg_proc p, regexp_matches(p.proargdefaults::text, ':funcid (\\d+)', 'g') AS m
WHERE p.oid >= 16384 AND p.proargdefaults IS NOT NULL AND m[1]::oid < 16384;";

/// What an operator calls, or another that a server may substitute: its negator after NOT, its
/// commutator, or that one's; ORDER BY … USING it, what its operator class compares with.
const OPERATORS: &str = "SELECT o.oid, n.nspname, o.oprname,
    concat_ws(' ', o.oprcode::oid, o.oprrest::oid, o.oprjoin::oid,
        (SELECT string_agg(x.oprcode::oid::text, ' ') FROM pg_operator x
         WHERE x.oid IN (SELECT unnest(ARRAY[y.oid, y.oprcom, y.oprnegate]) FROM pg_operator y
             WHERE y.oid IN (o.oprcom, o.oprnegate))),
        (SELECT string_agg(p.amproc::oid::text, ' ') FROM pg_amop m
         JOIN pg_amproc p ON p.amprocfamily = m.amopfamily AND p.amproc::oid >= 16384
         WHERE m.amopopr = o.oid),
        -- Servers derive others of the family from one that a query has.
        (SELECT string_agg(DISTINCT x.oprcode::oid::text, ' ') FROM pg_amop m
         JOIN pg_amop s ON s.amopfamily = m.amopfamily
         JOIN pg_operator x ON x.oid = s.amopopr AND x.oprcode::oid >= 16384
         WHERE m.amopopr = o.oid)),
    -- Of a domain, an enum or a row, `=` may as well be the one that is built in; and a literal beside a value of one
    -- operand's type may be meant for the other's.
    2 > (SELECT count(*) FROM unnest(ARRAY[o.oprleft, o.oprright]) AS operand JOIN pg_type t ON t.oid = operand
        WHERE t.oid >= 16384 AND t.typtype = 'b' AND t.typelem = 0)
FROM pg_operator o JOIN pg_namespace n ON n.oid = o.oprnamespace WHERE o.oid >= 16384;";

/// Types that may have code or parts; of row types of tables, only those
/// with such columns or with casts, or that functions are of.
const TYPES: &str = "SELECT t.oid, n.nspname, t.typname, t.typarray,
    concat_ws(' ', nullif(t.typbasetype, 0), r.rngsubtype, m.rngtypid,
        (SELECT string_agg(a.atttypid::text, ' ') FROM pg_attribute a
         WHERE t.typtype = 'c' AND a.attrelid = t.typrelid AND NOT a.attisdropped)),
    concat_ws(' ', t.typinput::oid, t.typreceive::oid, t.typmodin::oid, r.rngcanonical::oid,
        r.rngsubdiff::oid),
    concat_ws(' ', t.typoutput::oid, t.typsend::oid),
    CASE WHEN c.relkind <> 'c' THEN t.typrelid ELSE 0 END, t.typtype,
    CASE t.typtype WHEN 'd' THEN pg_get_expr(t.typdefaultbin, 0) END
FROM pg_type t JOIN pg_namespace n ON n.oid = t.typnamespace
LEFT JOIN pg_class c ON c.oid = t.typrelid
LEFT JOIN pg_range r ON r.rngtypid = t.oid
LEFT JOIN pg_range m ON m.rngmultitypid = t.oid
WHERE t.oid >= 16384 AND n.nspname <> 'tutti' AND (t.typtype = ANY ('{d,r,m,e}')
    OR (t.typtype = 'b' AND t.typcategory <> 'A') OR (t.typtype = 'c' AND (c.relkind = 'c'
        OR t.typrelid IN (SELECT a.attrelid FROM pg_attribute a
            WHERE a.atttypid >= 16384 AND a.attnum > 0 AND NOT a.attisdropped)
        OR EXISTS (SELECT FROM pg_depend d WHERE d.refclassid = 'pg_type'::regclass
            AND d.refobjid IN (t.oid, t.typarray) AND d.deptype = 'n'
            AND d.classid = ANY ('{pg_proc,pg_type,pg_class}'::regclass[]::oid[]))
        OR EXISTS (SELECT FROM pg_cast k WHERE t.oid IN (k.castsource, k.casttarget)))));";

/// Casts, and what compares values of a type, as pairs of types and a function. A non-default
/// comparison is used by indexes, partitions and types of ranges that name it, or by its operators.
const OF_TYPES: &str = "SELECT castsource, casttarget, castfunc FROM pg_cast
WHERE oid >= 16384 AND castfunc <> 0
UNION ALL SELECT amproclefttype, amprocrighttype, amproc::oid FROM pg_amproc
    WHERE amproc::oid >= 16384 AND amprocfamily IN (SELECT c.opcfamily FROM pg_opclass c WHERE c.opcdefault
        OR EXISTS (SELECT FROM pg_index i WHERE c.oid = ANY (i.indclass))
        OR EXISTS (SELECT FROM pg_partitioned_table t WHERE c.oid = ANY (t.partclass))
        OR EXISTS (SELECT FROM pg_range r WHERE r.rngsubopc = c.oid))
UNION ALL SELECT a.amoplefttype, a.amoprighttype, o.oprcode::oid
    FROM pg_amop a JOIN pg_operator o ON o.oid = a.amopopr WHERE o.oprcode::oid >= 16384
        AND a.amopfamily IN (SELECT c.opcfamily FROM pg_opclass c WHERE c.opcdefault
            OR EXISTS (SELECT FROM pg_index i WHERE c.oid = ANY (i.indclass))
            OR EXISTS (SELECT FROM pg_partitioned_table t WHERE c.oid = ANY (t.partclass))
            OR EXISTS (SELECT FROM pg_range r WHERE r.rngsubopc = c.oid));";

/// Objects of relations and domains, with the user-defined objects they refer to: relation, domain,
/// kind, name, what fires it, whether it is a BEFORE ROW trigger; catalog and OID of what it refers
/// to, or schema and name of a relation; and how the server keeps what it plans with.
const ATTACHED: &str = "WITH edge AS (
    SELECT classid, objid, refclassid, refobjid FROM pg_depend
    WHERE refclassid = 'pg_proc'::regclass AND refobjid >= 16384 AND deptype <> 'e'
    UNION ALL SELECT classid, objid, refclassid, refobjid FROM pg_depend
    WHERE refclassid = 'pg_operator'::regclass AND refobjid >= 16384 AND deptype <> 'e'
    UNION ALL SELECT classid, objid, refclassid, refobjid FROM pg_depend
    -- What depends on a type by one of its columns is a table; by itself, it is what computes an index or a partition.
    WHERE refclassid = 'pg_type'::regclass AND refobjid >= 16384 AND deptype = 'n'
        AND (classid <> 'pg_class'::regclass OR objsubid = 0)
    UNION ALL SELECT classid, objid, refclassid, refobjid FROM pg_depend
    WHERE classid = ANY (ARRAY['pg_policy', 'pg_rewrite']::regclass[]::oid[])
        AND refclassid = 'pg_class'::regclass AND refobjid >= 16384
), object (classid, objid, relation, domain, kind, name, fired, changes) AS (
    SELECT 'pg_policy'::regclass::oid, oid, polrelid, 0::oid, 'policy', polname, 15, false
    FROM pg_policy
    UNION ALL SELECT 'pg_trigger'::regclass::oid, oid, tgrelid, 0, 'trigger', tgname,
        (tgtype & 4) / 4 + (tgtype & 16) / 8 + (tgtype & 8) / 2 + (tgtype & 32) / 4,
        tgtype & 3 = 3
    FROM pg_trigger WHERE NOT tgisinternal AND tgenabled <> 'D'
        -- (Those that keep unique indexes are the gateway's own.)
        AND NOT EXISTS (SELECT FROM pg_proc f WHERE f.oid = tgfoid AND f.pronamespace = 'tutti'::regnamespace)
    UNION ALL SELECT 'pg_rewrite'::regclass::oid, r.oid, r.ev_class, 0,
        CASE WHEN r.ev_type = '1' THEN 'view' ELSE 'rule' END, r.rulename,
        CASE r.ev_type WHEN '2' THEN 2 WHEN '3' THEN 1 WHEN '4' THEN 4 ELSE 0 END, false
    FROM pg_rewrite r JOIN pg_class c ON c.oid = r.ev_class
    WHERE r.ev_class >= 16384 AND r.ev_enabled <> 'D' AND (c.relkind <> 'm')
    UNION ALL SELECT 'pg_constraint'::regclass::oid, oid, conrelid, contypid, 'check', conname,
        15, false
    FROM pg_constraint WHERE contype IN ('c', 'x')
    UNION ALL SELECT 'pg_type'::regclass::oid, oid, 0, oid, 'default', typname, 15, false
    FROM pg_type WHERE typtype = 'd' AND typdefaultbin IS NOT NULL
    UNION ALL SELECT 'pg_attrdef'::regclass::oid, d.oid, d.adrelid, 0,
        CASE WHEN a.attgenerated = '' THEN 'default' ELSE 'check' END, a.attname, 15, false
    FROM pg_attrdef d JOIN pg_attribute a ON a.attrelid = d.adrelid AND a.attnum = d.adnum
    UNION ALL SELECT 'pg_class'::regclass::oid, indexrelid, indrelid, 0, 'index',
        indexrelid::regclass::text, 15, false
    FROM pg_index WHERE indexrelid >= 16384
    UNION ALL SELECT 'pg_class'::regclass::oid, partrelid, partrelid, 0, 'index', '', 15, false
    FROM pg_partitioned_table
    UNION ALL SELECT 'pg_statistic_ext'::regclass::oid, oid, stxrelid, 0, 'statistics', stxname, 15, false
    FROM pg_statistic_ext WHERE stxexprs IS NOT NULL
)";

const ATTACHED_USES: &str = "
SELECT o.relation, o.domain, o.kind, o.name, o.fired, o.changes,
    CASE e.refclassid WHEN 'pg_proc'::regclass THEN 'f' WHEN 'pg_operator'::regclass THEN 'o'
        WHEN 'pg_type'::regclass THEN 't' ELSE 'r' END,
    e.refobjid, rn.nspname, r.relname, s.tree
FROM edge e JOIN object o ON o.classid = e.classid AND o.objid = e.objid
-- How the server keeps what it plans with.
LEFT JOIN (
    SELECT 'pg_class'::regclass, indexrelid, concat(indexprs::text, indpred::text) FROM pg_index
        WHERE indexprs IS NOT NULL OR indpred IS NOT NULL
    UNION ALL SELECT 'pg_class'::regclass, partrelid, partexprs::text FROM pg_partitioned_table
        WHERE partexprs IS NOT NULL
    UNION ALL SELECT 'pg_constraint'::regclass, oid, conbin::text FROM pg_constraint
        WHERE contype = 'c' AND conrelid <> 0
    UNION ALL SELECT 'pg_statistic_ext'::regclass, oid, stxexprs::text FROM pg_statistic_ext
        WHERE stxexprs IS NOT NULL
    ) AS s (classid, objid, tree) ON s.classid = o.classid AND s.objid = o.objid
LEFT JOIN pg_class r ON e.refclassid = 'pg_class'::regclass AND r.oid = e.refobjid
LEFT JOIN pg_namespace rn ON rn.oid = r.relnamespace
WHERE e.refobjid <> o.relation
UNION ALL SELECT o.relation, o.domain, o.kind, o.name, o.fired, o.changes, 'f', b.function,
    NULL, NULL, NULL
FROM object o JOIN built_in b ON b.classid = o.classid AND b.objid = o.objid
UNION ALL SELECT o.relation, o.domain, o.kind, o.name, o.fired, o.changes, '', 0, NULL, NULL, NULL
FROM object o WHERE o.kind = 'trigger'
-- A rule that does more than leaving something out runs statements, be it over its own table, or over
-- none, whose rows are the client's.
UNION ALL SELECT o.relation, o.domain, o.kind, o.name, o.fired, o.changes, 'r', c.oid, n.nspname,
    c.relname, NULL
FROM object o JOIN pg_rewrite r ON r.oid = o.objid JOIN pg_class c ON c.oid = r.ev_class
JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE o.kind = 'rule' AND (r.ev_action::text NOT LIKE '({QUERY :commandType 7 %'
    OR r.ev_qual::text LIKE '%{SUBLINK %');";

/// Children, and foreign keys, once for DELETE and once for UPDATE (of those that hold over all nodes by entries only what
/// they do): relation, the other with its schema
/// and name, what it is written by, as what; each column that is referred to and that refers, whether
/// the action sets it, and to its default; the foreign key, and which statement it is about.
const WRITTEN_WITH: &str = "SELECT h.inhparent, h.inhrelid, n.nspname, c.relname, 15, 0,
    NULL, NULL, false, false, 0, 0
FROM pg_inherits h JOIN pg_class c ON c.oid = h.inhrelid AND c.relkind IN ('r', 'p', 'f')
JOIN pg_namespace n ON n.oid = c.relnamespace
UNION ALL SELECT f.confrelid, f.conrelid, n.nspname, c.relname, e.by, e.as_event,
    r.attname, k.attname, e.by <> 0 AND e.as_event = 2 AND (e.by = 2 OR f.confdelsetcols IS NULL
        OR k.attnum = ANY (f.confdelsetcols)), e.action = 'd', f.oid, e.statement
FROM pg_constraint f JOIN pg_class c ON c.oid = f.conrelid
JOIN pg_namespace n ON n.oid = c.relnamespace
CROSS JOIN LATERAL (VALUES
    (4, CASE WHEN f.confdeltype IN ('c', 'n', 'd') THEN 4 ELSE 0 END,
        CASE f.confdeltype WHEN 'c' THEN 4 ELSE 2 END, f.confdeltype),
    (2, CASE WHEN f.confupdtype IN ('c', 'n', 'd') THEN 2 ELSE 0 END, 2, f.confupdtype)
    ) AS e (statement, by, as_event, action)
CROSS JOIN LATERAL unnest(f.conkey, f.confkey) WITH ORDINALITY AS u (own, other, position)
JOIN pg_attribute k ON k.attrelid = f.conrelid AND k.attnum = u.own
JOIN pg_attribute r ON r.attrelid = f.confrelid AND r.attnum = u.other
WHERE f.contype = 'f' AND n.nspname <> 'tutti'
    AND (e.statement = 4 AND e.by <> 0 OR NOT EXISTS (SELECT FROM tutti.reference r WHERE r.foreign_key = f.oid));";

const EVENT_TRIGGERS: &str =
    "SELECT evtname, evtfoid FROM pg_event_trigger WHERE evtenabled <> 'D';";

/// Texts with a dot in what is stored as a tree, as byte values: of policies, views and rules,
/// triggers, defaults, constraints, indexes, partition keys, statistics and arguments.
const LITERALS: &str = r"SELECT DISTINCT m[1] FROM (
    SELECT concat(polqual::text, polwithcheck::text) FROM pg_policy
    UNION ALL SELECT concat(ev_qual::text, ev_action::text) FROM pg_rewrite WHERE ev_class >= 16384
    UNION ALL SELECT tgqual::text FROM pg_trigger WHERE tgqual IS NOT NULL
    UNION ALL SELECT adbin::text FROM pg_attrdef
    UNION ALL SELECT conbin::text FROM pg_constraint WHERE contype = 'c'
    UNION ALL SELECT typdefaultbin::text FROM pg_type WHERE typdefaultbin IS NOT NULL
    UNION ALL SELECT concat(indexprs::text, indpred::text) FROM pg_index
        WHERE indexprs IS NOT NULL OR indpred IS NOT NULL
    UNION ALL SELECT partexprs::text FROM pg_partitioned_table WHERE partexprs IS NOT NULL
    UNION ALL SELECT stxexprs::text FROM pg_statistic_ext WHERE stxexprs IS NOT NULL
    UNION ALL SELECT proargdefaults::text FROM pg_proc
        WHERE oid >= 16384 AND proargdefaults IS NOT NULL
    ) AS s (tree),
    regexp_matches(s.tree, ':consttype (?:25|1042|1043) [^{}]*:constvalue \d+ \[ ([-0-9 ]+)\]', 'g') AS m
WHERE m[1] LIKE '% 46 %';";

/// Built-in functions that are not plain, as an SQL array; and those of them that matter in defaults
/// and views: there the planner handles what only has an effect on node 1.
pub(super) fn built_in_lists(built_in: &BuiltInCode) -> [String; 2] {
    let mut oids: Vec<_> = built_in.oids().collect();
    oids.sort_unstable();
    let list = |oids: &[u32]| {
        let oids: Vec<_> = oids.iter().map(ToString::to_string).collect();
        format!("'{{{}}}'::pg_catalog.oid[]", oids.join(","))
    };
    let all = list(&oids);
    oids.retain(|oid| built_in.of_oid(*oid) > BuiltIn::Home);
    [all, list(&oids)]
}

/// All queries, in one string. `built_in`: functions that are not plain.
pub(super) fn queries(built_in: &BuiltInCode) -> String {
    let [all, grave] = built_in_lists(built_in);
    let called =
        "SELECT DISTINCT m[1]::oid FROM regexp_matches(s.tree, ':funcid (\\d+)', 'g') AS m";
    let built_in = format!(
        ", built_in (classid, objid, function) AS (
    SELECT s.classid, s.objid, f FROM (
        SELECT 'pg_policy'::regclass::oid, oid, concat(polqual::text, polwithcheck::text)
        FROM pg_policy
        UNION ALL SELECT 'pg_trigger'::regclass::oid, oid, tgqual::text FROM pg_trigger
            WHERE tgqual IS NOT NULL
        UNION ALL SELECT 'pg_constraint'::regclass::oid, oid, conbin::text FROM pg_constraint
            WHERE contype = 'c' AND conbin::text LIKE '%FUNCEXPR%'
        UNION ALL SELECT 'pg_class'::regclass::oid, indexrelid,
            concat(indexprs::text, indpred::text) FROM pg_index
            WHERE indexprs IS NOT NULL OR indpred IS NOT NULL
        UNION ALL SELECT 'pg_statistic_ext'::regclass::oid, oid, stxexprs::text FROM pg_statistic_ext
            WHERE stxexprs IS NOT NULL
        ) AS s (classid, objid, tree), LATERAL ({called}) AS c (f) WHERE c.f = ANY ({all})
    UNION ALL SELECT s.classid, s.objid, f FROM (
        SELECT 'pg_attrdef'::regclass::oid, oid, adbin::text FROM pg_attrdef
            WHERE adbin::text LIKE '%FUNCEXPR%'
        UNION ALL SELECT 'pg_type'::regclass::oid, oid, typdefaultbin::text FROM pg_type
            WHERE typtype = 'd' AND typdefaultbin IS NOT NULL
        UNION ALL SELECT 'pg_rewrite'::regclass::oid, oid, concat(ev_qual::text, ev_action::text)
            FROM pg_rewrite
            WHERE ev_class >= 16384
        ) AS s (classid, objid, tree), LATERAL ({called}) AS c (f) WHERE c.f = ANY ({grave}))"
    );
    [
        FUNCTIONS,
        FUNCTIONS_USES,
        OPERATORS,
        TYPES,
        OF_TYPES,
        ATTACHED,
        &built_in,
        ATTACHED_USES,
        WRITTEN_WITH,
        EVENT_TRIGGERS,
        LITERALS,
    ]
    .join("\n")
}

/// Turns the answers to [`queries`] into what the planner searches. Bodies that `previous` has are
/// not read again.
///
/// Errors: [`GatewayError::Unreadable`].
pub(super) fn read(
    answers: &[Answer<'_>; QUERIES],
    previous: Option<&Code>,
    built_in: Arc<BuiltInCode>,
) -> Result<Code, GatewayError> {
    let [
        functions,
        functions_uses,
        operators,
        types,
        of_types,
        attached,
        written_with,
        event_triggers,
        literals,
    ] = answers;
    let known: HashMap<u32, &Arc<Body>> =
        previous.map(|code| code.bodies().collect()).unwrap_or_default();
    let mut code = Code::new(built_in);
    for row in 0..functions.len() {
        let (oid, function) = read_function(functions, row, &known)?;
        code.add_function(oid, function);
    }
    for row in 0..functions_uses.len() {
        let (function, used) = (functions_uses.number(row, 0)?, functions_uses.number(row, 1)?);
        let used = match functions_uses.boolean(row, 2)? {
            true => Use::Type(used),
            false => Use::Function(used),
        };
        if let Some(function) = code.function_mut(function) {
            function.uses.push(used);
        }
    }
    for row in 0..operators.len() {
        let uses = numbers(operators, row, 3)?.into_iter().filter(|oid| *oid != 0);
        let operator = OperatorCode {
            schema: operators.text(row, 1)?.to_owned(),
            name: operators.text(row, 2)?.to_owned(),
            uses: uses.map(Use::Function).collect(),
            over_built_in: operators.boolean(row, 4)?,
        };
        code.add_operator(operators.number(row, 0)?, operator);
    }
    read_types(types, &mut code)?;
    for row in 0..of_types.len() {
        let used = Use::Function(of_types.number(row, 2)?);
        let mut found = false;
        for column in [0, 1] {
            if let Some(of) = code.type_mut(of_types.number(row, column)?) {
                of.seen.push(used.clone());
                found = true;
            }
        }
        if !found && !code.is_plain(&used) {
            code.add_everywhere(used);
        }
    }
    read_attached(attached, &mut code)?;
    read_written_with(written_with, &mut code)?;
    for row in 0..event_triggers.len() {
        code.add_event_trigger(Attached {
            kind: AttachedKind::Trigger,
            name: event_triggers.text(row, 0)?.to_owned(),
            events: events::ALL,
            changes_row: false,
            uses: vec![Use::Function(event_triggers.number(row, 1)?)],
            is_folded: false,
        });
    }
    for row in 0..literals.len() {
        code.add_literal(&read_literal(literals.text(row, 0)?));
    }
    Ok(code)
}

/// A text as it stands in a tree: byte values, the first four of which are its length.
pub(super) fn read_literal(numbers: &str) -> String {
    let bytes = numbers.split_whitespace().skip(4).filter_map(|byte| byte.parse::<i8>().ok());
    String::from_utf8_lossy(&bytes.map(i8::cast_unsigned).collect::<Vec<_>>()).into_owned()
}

/// Reads types into `code`.
pub(super) fn read_types(types: &Answer<'_>, code: &mut Code) -> Result<(), GatewayError> {
    for row in 0..types.len() {
        let user_functions = |column| {
            let of = numbers(types, row, column)?;
            Ok::<_, GatewayError>(
                of.into_iter().filter(|oid| 16384 <= *oid).map(Use::Function).collect(),
            )
        };
        let row_of = Some(types.number(row, 7)?).filter(|relation| *relation != 0);
        let of = TypeCode {
            schema: types.text(row, 1)?.to_owned(),
            name: types.text(row, 2)?.to_owned(),
            seen: user_functions(6)?,
            made: user_functions(5)?,
            defaults: Vec::new(),
            parts: numbers(types, row, 4)?,
            kind: match types.text(row, 8)? {
                _ if row_of.is_some() => TypeKind::Row,
                "c" => TypeKind::Row,
                "d" => TypeKind::Domain,
                "r" => TypeKind::Range,
                "m" => TypeKind::Multirange,
                _ => TypeKind::Base,
            },
            default: types.optional(row, 9).map(str::to_owned),
            row_of,
        };
        code.add_type(types.number(row, 0)?, types.number(row, 3)?, of);
    }
    Ok(())
}

/// Reads children and foreign keys into `code`.
pub(super) fn read_written_with(
    written_with: &Answer<'_>,
    code: &mut Code,
) -> Result<(), GatewayError> {
    let mut foreign_keys: BTreeMap<(u32, u32), (u32, WrittenWith)> = BTreeMap::new();
    for row in 0..written_with.len() {
        let column = match (written_with.optional(row, 6), written_with.optional(row, 7)) {
            (Some(referred), Some(referring)) => Some(KeyColumn {
                referred: referred.to_owned(),
                referring: referring.to_owned(),
                is_set: written_with.boolean(row, 8)?,
                to_default: written_with.boolean(row, 9)?,
            }),
            _ => None,
        };
        let other = WrittenWith {
            relation: written_with.number(row, 1)?,
            schema: written_with.text(row, 2)?.to_owned(),
            name: written_with.text(row, 3)?.to_owned(),
            by: written_with.number(row, 4)?,
            as_event: written_with.number(row, 5)?,
            columns: column.into_iter().collect(),
        };
        let relation = written_with.number(row, 0)?;
        match (written_with.number(row, 10)?, written_with.number(row, 11)?) {
            (0, _) => code.write_with(relation, other),
            of => {
                let known = foreign_keys.entry(of).or_insert_with(|| {
                    (relation, WrittenWith { columns: Vec::new(), ..other.clone() })
                });
                known.1.columns.extend(other.columns);
            }
        }
    }
    for (relation, other) in foreign_keys.into_values() {
        code.write_with(relation, other);
    }
    Ok(())
}

fn read_function(
    answer: &Answer<'_>,
    row: usize,
    known: &HashMap<u32, &Arc<Body>>,
) -> Result<(u32, FunctionCode), GatewayError> {
    let oid = answer.number(row, 0)?;
    let (language, text) = (answer.text(row, 3)?, answer.text(row, 6)?);
    let known = known.get(&oid).filter(|body| body.is_of(language, text));
    let body = match known {
        _ if answer.boolean(row, 5)? => Arc::new(Body::of_aggregate()),
        Some(known) => Arc::clone(known),
        None => {
            let is_immutable = answer.boolean(row, 4)?;
            Arc::new(Body::of_function(language, text, is_immutable, answer.optional(row, 11)))
        }
    };
    let mut types = numbers(answer, row, 7)?;
    types.push(answer.number(row, 8)?);
    types.retain(|oid| 16384 <= *oid);
    let function = FunctionCode {
        schema: answer.text(row, 1)?.to_owned(),
        name: answer.text(row, 2)?.to_owned(),
        path: answer.optional(row, 10).map(read_path),
        is_definer: answer.boolean(row, 14)?,
        types,
        takes_one: answer.boolean(row, 9)?,
        body,
        uses: Vec::new(),
        hides: answer.optional(row, 13).is_some_and(names_accounting),
        declared: answer.optional(row, 12).and_then(Declaration::from_name),
    };
    Ok((oid, function))
}

/// Reads the objects of relations and domains into `code`.
pub(super) fn read_attached(answer: &Answer<'_>, code: &mut Code) -> Result<(), GatewayError> {
    for row in 0..answer.len() {
        let used = match answer.text(row, 6)? {
            "f" => Some(Use::Function(answer.number(row, 7)?)),
            "o" => Some(Use::Operator(answer.number(row, 7)?)),
            "t" => Some(Use::Type(answer.number(row, 7)?)),
            "r" => match (answer.optional(row, 8), answer.optional(row, 9)) {
                (Some(schema), Some(name)) => {
                    Some(Use::Relation(schema.to_owned(), name.to_owned()))
                }
                _ => None,
            },
            _ => None,
        };
        let domain: u32 = answer.number(row, 1)?;
        if domain != 0 {
            if let Some(of) = code.type_mut(domain) {
                let uses = match answer.text(row, 2)? {
                    "default" => &mut of.defaults,
                    _ => &mut of.made,
                };
                uses.extend(used);
            }
            continue;
        }
        let attached = Attached {
            kind: match answer.text(row, 2)? {
                "policy" => AttachedKind::Policy,
                "trigger" => AttachedKind::Trigger,
                "rule" => AttachedKind::Rule,
                "view" => AttachedKind::View,
                "default" => AttachedKind::Default,
                "index" => AttachedKind::Index,
                "statistics" => AttachedKind::Statistics,
                _ => AttachedKind::Check,
            },
            name: answer.text(row, 3)?.to_owned(),
            events: answer.number(row, 4)?,
            changes_row: answer.boolean(row, 5)?,
            uses: used.into_iter().collect(),
            is_folded: answer.optional(row, 10).is_some_and(folds_code),
        };
        code.attach(answer.number(row, 0)?, attached);
    }
    Ok(())
}

/// Numbers separated by spaces.
fn numbers(answer: &Answer<'_>, row: usize, column: usize) -> Result<Vec<u32>, GatewayError> {
    let texts = answer.optional(row, column).unwrap_or_default().split_whitespace();
    texts.map(|text| text.parse().map_err(|_| answer.unreadable())).collect()
}

/// The schemas of a search path as written in a function's configuration.
fn read_path(text: &str) -> Vec<String> {
    let unquoted = |schema: &str| match schema.strip_prefix('"').and_then(|it| it.strip_suffix('"'))
    {
        Some(quoted) => quoted.replace("\"\"", "\""),
        None => schema.to_lowercase(),
    };
    text.split(',').map(|schema| unquoted(schema.trim())).filter(|it| !it.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_functions() {
        assert_eq!(
            read_path(r#"public, "Odd ""one""", $user"#),
            ["public", "Odd \"one\"", "$user"]
        );
        assert!(read_path("\"\"").is_empty());
    }
}
