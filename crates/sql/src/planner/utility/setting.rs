//! SET, SHOW, RESET and DISCARD, with all their special forms.
//!
//! Owns: which setting a form means. Never: keeps values.

use pg_query::NodeEnum;
use pg_query::protobuf::{
    ConstraintsSetStmt, DiscardMode, DiscardStmt, RangeVar, VariableSetKind, VariableSetStmt,
    VariableShowStmt,
};

use super::transaction;
use crate::catalog::quote_identifier;
use crate::plan::{Planned, SessionPlan, Setting, TransactionModes};
use crate::planner::syntax::option_text;
use crate::refusal::Refusal;
use crate::settings::check_value;

/// Errors: 22023 for a value that one of the gateway's own settings has not.
pub(super) fn check(set: &VariableSetStmt) -> Result<(), Refusal> {
    match first_value(set) {
        Some(value) if set.kind() == VariableSetKind::VarSetValue => check_value(&set.name, &value),
        _ => Ok(()),
    }
}

pub(super) fn plan_set(set: &VariableSetStmt) -> Planned {
    // The grammar folds the special forms already: `SET NAMES` is client_encoding, `SET TIME ZONE`
    // timezone, `SET SCHEMA` search_path, `SET SESSION AUTHORIZATION` session_authorization.
    let name = set.name.to_ascii_lowercase();
    let setting = match set.kind() {
        VariableSetKind::VarReset => Setting::Reset { name },
        VariableSetKind::VarSetDefault if !set.is_local => Setting::Reset { name },
        VariableSetKind::VarResetAll => Setting::ResetAll,
        VariableSetKind::VarSetMulti => Setting::SetTransaction {
            modes: transaction::modes(&set.args),
            session: name == "session characteristics",
            snapshot: name == "transaction snapshot",
        },
        VariableSetKind::VarSetValue if name == "transaction_isolation" => {
            let isolation = first_value(set).map(|level| level.to_ascii_lowercase());
            transaction_setting(TransactionModes { isolation, ..TransactionModes::default() })
        }
        VariableSetKind::VarSetValue if name == "transaction_read_only" => {
            let read_only = Some(is_on(set));
            transaction_setting(TransactionModes { read_only, ..TransactionModes::default() })
        }
        VariableSetKind::VarSetValue if name == "transaction_deferrable" => {
            let deferrable = Some(is_on(set));
            transaction_setting(TransactionModes { deferrable, ..TransactionModes::default() })
        }
        kind if set.is_local => {
            Setting::SetLocal { name, to_default: kind == VariableSetKind::VarSetDefault }
        }
        _ => Setting::Set { name },
    };
    Planned::new(SessionPlan::Setting(setting), "the session's settings hold on every node it uses")
}

fn quoted_name(range: &RangeVar) -> String {
    let name = quote_identifier(&range.relname);
    match range.schemaname.as_str() {
        "" => name,
        schema => format!("{}.{name}", quote_identifier(schema)),
    }
}

fn transaction_setting(modes: TransactionModes) -> Setting {
    Setting::SetTransaction { modes, session: false, snapshot: false }
}

fn is_on(set: &VariableSetStmt) -> bool {
    let value = first_value(set).unwrap_or_default().to_ascii_lowercase();
    ["on", "true", "yes", "1", "t", "y"].contains(&value.as_str())
}

/// The first value of a SET, as text.
fn first_value(set: &VariableSetStmt) -> Option<String> {
    let value = set.args.first()?.clone();
    option_text(&pg_query::protobuf::DefElem {
        arg: Some(Box::new(value)),
        ..pg_query::protobuf::DefElem::default()
    })
}

pub(super) fn plan_show(show: &VariableShowStmt) -> Planned {
    let name = show.name.to_ascii_lowercase();
    Planned::new(
        SessionPlan::Setting(Setting::Show { name }),
        "settings are shown by the session's node",
    )
}

pub(super) fn plan_discard(discard: &DiscardStmt) -> Planned {
    let what = match discard.target() {
        DiscardMode::DiscardPlans => "plans",
        DiscardMode::DiscardSequences => "sequences",
        DiscardMode::DiscardTemp => "temp",
        DiscardMode::DiscardAll | DiscardMode::Undefined => "all",
    };
    Planned::new(
        SessionPlan::Setting(Setting::Discard { what: what.to_owned() }),
        "the session's state goes on every node it uses",
    )
}

pub(super) fn plan_constraints(set: &ConstraintsSetStmt) -> Planned {
    let named = set.constraints.iter().filter_map(|constraint| match &constraint.node {
        Some(NodeEnum::RangeVar(range)) => Some(quoted_name(range)),
        _ => None,
    });
    let names = named.collect();
    Planned::new(
        SessionPlan::Setting(Setting::SetConstraints { names, deferred: set.deferred }),
        "constraints are checked on every node the transaction uses",
    )
}
