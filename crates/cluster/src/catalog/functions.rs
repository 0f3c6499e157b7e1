//! What is known of functions by name: kind and volatility, overloads folded together.
//!
//! Owns: reading that; for PostgreSQL's own functions only once. Never: looks into a body (`code`
//! does).
//! Start reading at [`load_built_ins`].

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use tutti_link::connection::NodeConnection;
use tutti_sql::catalog::{Function, Volatility};
use tutti_sql::closure::{BuiltInCode, classify};

use super::rows::Answer;
use crate::error::GatewayError;

/// Columns 0 to 3 are what [`fold`] reads.
const BUILTINS: &str = "SELECT p.proname, p.provolatile, p.prokind, p.proretset, p.oid
FROM pg_catalog.pg_proc p WHERE p.pronamespace = 'pg_catalog'::pg_catalog.regnamespace
    AND p.oid < 16384";

const RELATIONS: &str = "SELECT c.relname FROM pg_catalog.pg_class c
WHERE c.relnamespace = 'pg_catalog'::pg_catalog.regnamespace AND c.relkind = ANY ('{r,v}') AND c.oid < 16384";

/// What PostgreSQL has of its own.
pub(super) struct BuiltIns {
    /// By name.
    pub(super) functions: Arc<HashMap<String, Function>>,
    /// Those whose result depends on more than their arguments.
    pub(super) code: Arc<BuiltInCode>,
    /// The names of its tables and views.
    pub(super) relations: Arc<HashSet<String>>,
}

/// Reads what is in `pg_catalog`. It does not change while a server runs: once is enough.
pub(super) async fn load_built_ins(home: &mut NodeConnection) -> Result<BuiltIns, GatewayError> {
    let rows = home.rows(BUILTINS).await?;
    let answer = Answer { node: home.node(), what: "built-in functions", rows: &rows };
    let mut functions = HashMap::with_capacity(answer.len());
    let mut code = BuiltInCode::default();
    for row in 0..answer.len() {
        let function = function_at(&answer, row, 1)?;
        let name = answer.text(row, 0)?;
        code.add(answer.number(row, 4)?, name, classify(name, function.volatility));
        fold(&mut functions, name, function);
    }
    let rows = home.rows(RELATIONS).await?;
    let answer = Answer { node: home.node(), what: "built-in relations", rows: &rows };
    let relations = (0..answer.len()).map(|row| Ok(answer.text(row, 0)?.to_owned()));
    let relations = relations.collect::<Result<_, GatewayError>>()?;
    Ok(BuiltIns {
        functions: Arc::new(functions),
        code: Arc::new(code),
        relations: Arc::new(relations),
    })
}

/// Reads volatility, kind and set-returning from three columns.
pub(super) fn function_at(
    answer: &Answer<'_>,
    row: usize,
    first_column: usize,
) -> Result<Function, GatewayError> {
    let volatility = match answer.text(row, first_column)? {
        "i" => Volatility::Immutable,
        "s" => Volatility::Stable,
        _ => Volatility::Volatile,
    };
    let kind = answer.text(row, first_column + 1)?;
    Ok(Function {
        volatility,
        aggregate: kind == "a",
        window: kind == "w",
        returns_set: answer.boolean(row, first_column + 2)?,
    })
}

/// Adds an overload to what is known of its name.
pub(super) fn fold(functions: &mut HashMap<String, Function>, name: &str, overload: Function) {
    let Some(known) = functions.get_mut(name) else {
        functions.insert(name.to_owned(), overload);
        return;
    };
    known.volatility = known.volatility.max(overload.volatility);
    known.aggregate |= overload.aggregate;
    known.window |= overload.window;
    known.returns_set |= overload.returns_set;
}
