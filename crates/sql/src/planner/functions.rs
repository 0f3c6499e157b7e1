//! What calling a statement's functions means for where it may run.
//!
//! Owns: volatility, and the functions whose effect or answer belongs to node 1.
//! Never: looks into function bodies; the catalog's loader does.
//! Start reading at [`FunctionUse::add`].

use pg_query::NodeEnum;
use pg_query::protobuf::{FuncCall, Node, SqlValueFunction, SqlValueFunctionOp};

use super::context::Context;
use super::function_use::FunctionUse;
use super::syntax::name_of;
use crate::catalog::{Function, Volatility, quote_identifier};
use crate::closure::{BuiltIn, Search, Writing, is_of_home_rows};
use crate::walk;

/// The stable functions of `pg_catalog` that give the transaction's or the statement's time.
const TIME_FUNCTIONS: [&str; 3] = ["now", "transaction_timestamp", "statement_timestamp"];
/// Functions of `pg_catalog` that draw from or set sequences, which only node 1 has in order.
const SEQUENCE_FUNCTIONS: [&str; 4] = ["nextval", "currval", "lastval", "setval"];
/// Prefixes of built-in functions with an effect on the session or the server: whatever the
/// statement reads, the effect must be on node 1, where the session's other such calls are made.
const HOME_PREFIXES: [&str; 17] = [
    "pg_advisory_",
    "pg_try_advisory_",
    "pg_notify",
    "set_config",
    "lo_",
    "txid_",
    "pg_current_xact_id",
    "pg_export_snapshot",
    "pg_backend_pid",
    // A server's own, which another has otherwise.
    "inet_server_",
    "inet_client_",
    "pg_postmaster_start_time",
    "pg_conf_load_time",
    "pg_is_in_recovery",
    "pg_current_snapshot",
    "pg_my_temp_schema",
    "pg_current_logfile",
];
/// Aggregates whose result does not depend on the order of their input.
const ORDERLESS_AGGREGATES: [&str; 13] = [
    "count",
    "min",
    "max",
    "sum",
    "avg",
    "bool_and",
    "bool_or",
    "every",
    "bit_and",
    "bit_or",
    "bit_xor",
    "any_value",
    "regr_count",
];

impl FunctionUse {
    /// Opaque code in the statement is called on node 1, and may do anything there.
    pub(super) fn add_opaque(&mut self, context: &Context<'_>) {
        let Some(reason) = context.opaque else { return };
        let name = || match reason.code.strip_prefix("function ") {
            Some(function) => function.trim_end_matches("()").to_owned(),
            None => reason.code.clone(),
        };
        self.home.get_or_insert_with(name);
        self.volatile.get_or_insert_with(name);
        self.may_write.get_or_insert_with(name);
    }

    /// Adds one call; returns what the catalog knows of the function.
    pub(super) fn add<'c>(
        &mut self,
        call: &FuncCall,
        context: &Context<'c>,
    ) -> Option<&'c Function> {
        let (schema, name) = name_of(call);
        let function = context.catalog.function(context.scope, schema, name);
        let built_in = is_built_in(schema, name, context);
        if is_time_call(call, context) {
            self.reads_time = true;
        }
        if !built_in && is_of_home_rows(context.catalog, schema, name) {
            self.home.get_or_insert_with(|| name.to_owned());
        }
        if built_in && is_home(name, context) {
            self.home.get_or_insert_with(|| name.to_owned());
            self.sequence |= SEQUENCE_FUNCTIONS.contains(&name);
        }
        if let Some(function) = function
            && function.volatility == Volatility::Stable
            && !built_in
            && reads_what_differs(schema, name, context)
        {
            self.volatile.get_or_insert_with(|| name.to_owned());
        }
        // What the catalog does not know is either an error that PostgreSQL will report or newer
        // than the catalog: the most careful reading is right for both.
        if function.is_none_or(|function| function.volatility == Volatility::Volatile) {
            self.volatile.get_or_insert_with(|| name.to_owned());
            if !built_in {
                self.may_write.get_or_insert_with(|| name.to_owned());
            }
        }
        function
    }

    /// Adds `CURRENT_TIMESTAMP` and the like.
    pub(super) fn add_value_function(&mut self, function: &SqlValueFunction) {
        self.reads_time |= is_time(function);
    }
}

/// Whether a function of a user's reads the current time, say, which is not the same on all nodes.
fn reads_what_differs(schema: Option<&str>, name: &str, context: &Context<'_>) -> bool {
    let names = schema.into_iter().chain([name]).map(quote_identifier);
    let mut search = Search::new(context.catalog, context.scope, Writing::Statement);
    search.text(&format!("SELECT {}()", names.collect::<Vec<_>>().join(".")));
    search.finish().differs
}

/// Whether the call means a function of `pg_catalog`.
pub(super) fn is_built_in(schema: Option<&str>, name: &str, context: &Context<'_>) -> bool {
    match schema {
        Some(schema) => schema == "pg_catalog",
        None => context.catalog.builtin_functions.contains_key(name),
    }
}

/// Whether the built-in function is called, and no other of its name.
pub(super) fn means_built_in(schema: Option<&str>, name: &str, context: &Context<'_>) -> bool {
    is_built_in(schema, name, context) && (schema.is_some() || !may_be_hidden(name, context))
}

/// Whether a call gives the current time.
pub(super) fn is_time_call(call: &FuncCall, context: &Context<'_>) -> bool {
    let (schema, name) = name_of(call);
    // With arguments it is a user's.
    TIME_FUNCTIONS.contains(&name) && call.args.is_empty() && means_built_in(schema, name, context)
}

/// Whether it is `age` of one argument: the age at the current date.
pub(super) fn is_age_today(call: &FuncCall) -> bool {
    name_of(call).1 == "age" && call.args.len() == 1
}

/// Whether a function of this name in another schema may come before that of `pg_catalog`.
pub(super) fn may_be_hidden(name: &str, context: &Context<'_>) -> bool {
    let Context { catalog, scope, .. } = context;
    scope
        .search_path
        .iter()
        .take_while(|schema| *schema != "pg_catalog")
        .any(|schema| catalog.functions.get(schema).is_some_and(|of| of.contains_key(name)))
}

/// Whether the keyword gives the current time or date.
pub(super) fn is_time(function: &SqlValueFunction) -> bool {
    use SqlValueFunctionOp as Op;
    matches!(
        function.op(),
        Op::SvfopCurrentDate
            | Op::SvfopCurrentTime
            | Op::SvfopCurrentTimeN
            | Op::SvfopCurrentTimestamp
            | Op::SvfopCurrentTimestampN
            | Op::SvfopLocaltime
            | Op::SvfopLocaltimeN
            | Op::SvfopLocaltimestamp
            | Op::SvfopLocaltimestampN
    )
}

fn is_home(name: &str, context: &Context<'_>) -> bool {
    SEQUENCE_FUNCTIONS.contains(&name)
        || !matches!(
            context.catalog.code.built_in().of_name(name),
            BuiltIn::Plain | BuiltIn::MakesRows | BuiltIn::MakesValues
        )
        || HOME_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// Whether an aggregate's result is the same for any order of its input.
pub(super) fn is_orderless(name: &str) -> bool {
    ORDERLESS_AGGREGATES.contains(&name)
}

/// Whether an aggregate adds its input up: of floats in an order that shows.
pub(super) fn adds_up(name: &str) -> bool {
    const NAMES: [&str; 8] =
        ["avg", "stddev", "stddev_pop", "stddev_samp", "sum", "var_pop", "var_samp", "variance"];
    NAMES.contains(&name)
}

/// How volatile an expression is, its subqueries included.
pub(crate) fn volatility(expression: &Node, context: &Context<'_>) -> Volatility {
    let Some(node) = &expression.node else { return Volatility::Immutable };
    let mut worst = match node {
        NodeEnum::FuncCall(call) => {
            let (schema, name) = name_of(call);
            // Whether it would change or not: it must not be called where the rows are.
            match is_built_in(schema, name, context) && is_home(name, context) {
                true => Volatility::Volatile,
                false => context
                    .catalog
                    .function(context.scope, schema, name)
                    .map_or(Volatility::Volatile, |function| function.volatility),
            }
        }
        // A cast may depend on settings (the time zone), the keyword functions on the session.
        NodeEnum::SqlvalueFunction(_) | NodeEnum::SubLink(_) => Volatility::Stable,
        _ => Volatility::Immutable,
    };
    walk::read::children(node, &mut |child| worst = worst.max(volatility(child, context)));
    worst
}
