//! SELECTs that are calls to the gateway: `tutti_…()` and `set_config` with constants.
//!
//! Owns: recognising them. Never: carries them out.

use pg_query::NodeEnum;
use pg_query::protobuf::{FuncCall, Node, SelectStmt, a_const};

use super::request;
use crate::closure::Declaration;
use crate::plan::{Planned, SessionPlan, Setting, Shown, SignalTarget, TuttiCall};
use crate::planner::context::Context;
use crate::planner::syntax::string;
use crate::refusal::Refusal;
use crate::statement::DistributeBy;

/// A constant argument of a call.
#[derive(Debug, PartialEq)]
enum Constant {
    Null,
    Text(String),
    Boolean(bool),
}

/// The plan of a SELECT that the gateway answers or remembers itself; `None` for all others.
///
/// Errors: 42883 for a function of Tutti's with arguments that it does not take; 0A000 for one in FROM beside anything else.
pub(in crate::planner) fn special_select(
    select: &SelectStmt,
    context: &Context<'_>,
) -> Result<Option<Planned>, Refusal> {
    let Some((call, in_from)) = only_call(select) else {
        return refuse_beside_others(select, context).map(|()| None);
    };
    let names: Vec<&str> = call.funcname.iter().filter_map(string).collect();
    match names.as_slice() {
        ["set_config"] | ["pg_catalog", "set_config"] if !in_from => Ok(set_config(call)),
        [name @ ("pg_cancel_backend" | "pg_terminate_backend")]
        | ["pg_catalog", name @ ("pg_cancel_backend" | "pg_terminate_backend")]
            if !in_from =>
        {
            Ok(signal(name, call))
        }
        ["tutti", name] if name.starts_with("tutti_") => tutti_call(name, call, in_from),
        [name] if name.starts_with("tutti_") => {
            // A function of the user's own by such a name is the user's own business.
            if context.catalog.function(context.scope, None, name).is_some() {
                return Ok(None);
            }
            tutti_call(name, call, in_from)
        }
        _ => Ok(None),
    }
}

/// No server has the functions that show something.
fn refuse_beside_others(select: &SelectStmt, context: &Context<'_>) -> Result<(), Refusal> {
    let shown = select.from_clause.iter().find_map(|from| {
        let Some(NodeEnum::RangeFunction(function)) = &from.node else { return None };
        let Some(NodeEnum::List(item)) = &function.functions.first()?.node else { return None };
        let Some(NodeEnum::FuncCall(call)) = &item.items.first()?.node else { return None };
        let [name] = call.funcname.as_slice() else { return None };
        let shown = shown_by(string(name)?)?;
        context.catalog.function(context.scope, None, shown.function()).is_none().then_some(shown)
    });
    match shown {
        Some(shown) => Err(Refusal::unsupported(
            format!("{}() stands alone in its statement", shown.function()),
            "The gateway answers it, and no server has it.",
            format!("SELECT * FROM {}()", shown.function()),
        )),
        None => Ok(()),
    }
}

/// Whether [`special_select`] may look at the values of this query's literals.
pub(in crate::planner) fn reads_literals(select: &SelectStmt) -> bool {
    only_call(select).is_some_and(|(call, _)| {
        let name = call.funcname.last().and_then(string);
        name.is_some_and(|name| {
            matches!(name, "set_config" | "pg_cancel_backend" | "pg_terminate_backend")
                || name.starts_with("tutti_")
        })
    })
}

/// The call that is all of `SELECT f(…)`, or of `SELECT * FROM f(…)` (then true).
fn only_call(select: &SelectStmt) -> Option<(&FuncCall, bool)> {
    let plain = select.where_clause.is_none()
        && select.group_clause.is_empty()
        && select.having_clause.is_none()
        && select.distinct_clause.is_empty()
        && select.sort_clause.is_empty()
        && select.limit_count.is_none()
        && select.limit_offset.is_none()
        && select.with_clause.is_none()
        && select.into_clause.is_none()
        && select.larg.is_none();
    let [target] = select.target_list.as_slice() else { return None };
    let Some(NodeEnum::ResTarget(target)) = &target.node else { return None };
    let value = target.val.as_ref()?.node.as_ref()?;
    match (plain, value, select.from_clause.as_slice()) {
        (true, NodeEnum::FuncCall(call), []) => Some((call, false)),
        (true, NodeEnum::ColumnRef(star), [from]) => {
            let is_star =
                matches!(star.fields.as_slice(), [Node { node: Some(NodeEnum::AStar(_)) }]);
            let Some(NodeEnum::RangeFunction(function)) = &from.node else { return None };
            let [Node { node: Some(NodeEnum::List(item)) }] = function.functions.as_slice() else {
                return None;
            };
            match item.items.first()?.node.as_ref()? {
                NodeEnum::FuncCall(call) if is_star && !function.ordinality => Some((call, true)),
                _ => None,
            }
        }
        _ => None,
    }
}

fn set_config(call: &FuncCall) -> Option<Planned> {
    let [name, value, local] = call.args.as_slice() else { return None };
    let Constant::Text(name) = constant(name)? else { return None };
    let value = match constant(value)? {
        Constant::Text(value) => Some(value),
        Constant::Null => None,
        Constant::Boolean(_) => return None,
    };
    let local = match constant(local)? {
        Constant::Boolean(local) => local,
        Constant::Text(text) => match text.to_ascii_lowercase().as_str() {
            "t" | "true" | "on" | "yes" | "y" | "1" => true,
            "f" | "false" | "off" | "no" | "n" | "0" => false,
            _ => return None,
        },
        Constant::Null => return None,
    };
    let setting = Setting::SetConfig { name: name.to_ascii_lowercase(), value, local };
    Some(Planned::new(
        SessionPlan::Setting(setting),
        "the session's settings hold on every node it uses",
    ))
}

/// The table of `tutti_replicate('table', async => true)`.
fn asynchronous(call: &FuncCall) -> Option<String> {
    let [table, flag] = call.args.as_slice() else { return None };
    let Some(NodeEnum::NamedArgExpr(flag)) = &flag.node else { return None };
    let value = constant(flag.arg.as_deref()?)?;
    let is_true = matches!(value, Constant::Boolean(true));
    match constant(table)? {
        Constant::Text(table) if flag.name == "async" && is_true => Some(table),
        _ => None,
    }
}

fn signal(name: &str, call: &FuncCall) -> Option<Planned> {
    let target = match call.args.first()?.node.as_ref()? {
        NodeEnum::AConst(constant) => match constant.val.as_ref()? {
            a_const::Val::Ival(number) => SignalTarget::Constant(number.ival),
            _ => return None,
        },
        NodeEnum::FuncCall(own)
            if own.funcname.last().and_then(string) == Some("pg_backend_pid") =>
        {
            SignalTarget::Own
        }
        NodeEnum::ParamRef(parameter) => {
            let index = u16::try_from(parameter.number).ok()?.checked_sub(1)?;
            SignalTarget::Parameter(index)
        }
        _ => return None,
    };
    let terminates = name == "pg_terminate_backend";
    let why = "sessions are the gateway's, other processes node 1's";
    Some(Planned::new(SessionPlan::Tutti(TuttiCall::Signal { terminates, target }), why))
}

fn tutti_call(name: &str, call: &FuncCall, in_from: bool) -> Result<Option<Planned>, Refusal> {
    if let Some(call) = request::call(name, call) {
        let why = "the gateway keeps requests and their transactions";
        return Ok(Some(Planned::new(SessionPlan::Tutti(TuttiCall::Request(call)), why)));
    }
    let arguments: Option<Vec<String>> = call
        .args
        .iter()
        .map(|argument| match constant(argument)? {
            Constant::Text(text) => Some(text),
            // What was said of a function is taken back by either.
            Constant::Null if name == "tutti_function" => Some("none".to_owned()),
            _ => None,
        })
        .collect();
    if name == "tutti_replicate"
        && !in_from
        && let Some(table) = asynchronous(call)
    {
        let tables = vec![(table, DistributeBy::ReplicatedAsync)];
        let call = TuttiCall::Distribute { function: name.to_owned(), tables };
        let why = "Tutti's own function";
        return Ok(Some(Planned::new(SessionPlan::Tutti(call), why)));
    }
    let function = name.to_owned();
    let distribute = |tables: Vec<(String, DistributeBy)>| TuttiCall::Distribute {
        function: function.clone(),
        tables,
    };
    let all = |tables: &[String], distribute_by: DistributeBy| {
        distribute(tables.iter().map(|table| (table.clone(), distribute_by.clone())).collect())
    };
    let tutti_call = match (name, arguments.as_deref()) {
        ("tutti_distribute", Some(given))
            if !in_from && !given.is_empty() && given.len() % 2 == 0 =>
        {
            let pairs = given.chunks_exact(2);
            let by = |pair: &[String]| (pair[0].clone(), DistributeBy::Hash(pair[1].clone()));
            distribute(pairs.map(by).collect())
        }
        ("tutti_replicate", Some(tables @ [_, ..])) if !in_from => {
            all(tables, DistributeBy::Replicated)
        }
        ("tutti_round_robin", Some(tables @ [_, ..])) if !in_from => {
            all(tables, DistributeBy::RoundRobin)
        }
        ("tutti_home", Some(tables @ [_, ..])) if !in_from => all(tables, DistributeBy::Home),
        ("tutti_outcome", Some([gid])) if !in_from => TuttiCall::Outcome { gid: gid.clone() },
        ("tutti_function", Some([function, kind])) if !in_from => {
            let declared = Declaration::from_name(kind);
            if declared.is_none() && kind != "none" {
                let message = format!("a function cannot be declared \"{kind}\"");
                return Err(Refusal::postgres("22023", message).with_hint(
                    "'row': all that it touches belongs to the row's key; 'replicated': it reads \
                     replicated tables only; 'home': it touches tables of node 1 only; NULL takes \
                     it back.",
                ));
            }
            TuttiCall::Declare { function: function.clone(), declared }
        }
        (name, Some([])) if let Some(shown) = shown_by(name) => TuttiCall::Show(shown),
        _ => {
            let shown: Vec<_> =
                Shown::ALL.iter().map(|shown| format!("{}()", shown.function())).collect();
            let message = format!("function {name} with these arguments does not exist");
            return Err(Refusal::postgres("42883", message).with_hint(format!(
                "Tutti's functions are tutti_distribute('table', 'column', …), \
                 tutti_replicate('table', …), tutti_round_robin('table', …), \
                 tutti_home('table', …), \
                 tutti_function('function', 'row' or 'replicated' or 'home'), tutti_outcome('gid'), \
                 {}; their arguments are literals. Those for requests, whose arguments may be parameters, are \
                 tutti_begin('request', instance), tutti_remember('result'), \
                 tutti_prepare('request', instance, 'asked', 'result'), tutti_commit('request', instance), \
                 tutti_request('request').",
                shown.join(", ")
            )));
        }
    };
    Ok(Some(Planned::new(SessionPlan::Tutti(tutti_call), "the gateway answers this itself")))
}

/// What the function of this name shows.
fn shown_by(name: &str) -> Option<Shown> {
    Shown::ALL.into_iter().find(|shown| shown.function() == name)
}

/// A literal, perhaps with casts around it.
fn constant(node: &Node) -> Option<Constant> {
    match node.node.as_ref()? {
        NodeEnum::TypeCast(cast) => {
            // Casts that leave the text what it is.
            const PLAIN: [&str; 5] = ["text", "varchar", "bool", "regclass", "name"];
            let name = cast.type_name.as_ref().and_then(|name| string(name.names.last()?))?;
            PLAIN.contains(&name).then(|| constant(cast.arg.as_ref()?)).flatten()
        }
        NodeEnum::AConst(constant) if constant.isnull => Some(Constant::Null),
        NodeEnum::AConst(constant) => match constant.val.as_ref()? {
            a_const::Val::Sval(text) => Some(Constant::Text(text.sval.clone())),
            a_const::Val::Boolval(value) => Some(Constant::Boolean(value.boolval)),
            _ => None,
        },
        _ => None,
    }
}
