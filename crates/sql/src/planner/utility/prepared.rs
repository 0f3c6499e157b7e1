//! SQL-level prepared statements: PREPARE, EXECUTE, DEALLOCATE.
//!
//! Owns: cutting their parts out of the text, and putting arguments into a prepared text.
//! Never: keeps prepared statements; the session does.

use pg_query::NodeEnum;
use pg_query::protobuf::{DeallocateStmt, ExecuteStmt, PrepareStmt, Token};

use crate::plan::{Planned, PreparedCommand, SessionPlan};
use crate::refusal::Refusal;
use crate::statement::Statement;
use crate::statement::tokens::{list, scan, with_depth};

pub(super) fn plan_prepare(
    prepare: &PrepareStmt,
    statement: &Statement,
) -> Result<Planned, Refusal> {
    let text = statement.text.as_str();
    let tokens = scan(text).map_err(cannot_scan)?;
    // PREPARE name [(types)] AS statement
    let types = match list(text, &tokens, 2) {
        Some((types, _)) => types.into_iter().map(str::to_owned).collect(),
        None => Vec::new(),
    };
    let body = with_depth(&tokens)
        .find(|(depth, token)| *depth == 0 && token.token == Token::As)
        .and_then(|(_, token)| text.get(token.end..))
        .map_or("", str::trim);
    let prepare =
        PreparedCommand::Prepare { name: prepare.name.clone(), types, text: body.to_owned() };
    Ok(Planned::new(SessionPlan::PreparedCommand(prepare), "the gateway keeps prepared statements"))
}

pub(super) fn plan_execute(
    execute: &ExecuteStmt,
    statement: &Statement,
) -> Result<Planned, Refusal> {
    let text = statement.text.as_str();
    let tokens = scan(text).map_err(cannot_scan)?;
    // EXECUTE name [(arguments)]
    let arguments = list(text, &tokens, 2).map_or_else(Vec::new, |(arguments, _)| arguments);
    let arguments = arguments.into_iter().map(str::to_owned).collect();
    let execute = PreparedCommand::Execute { name: execute.name.clone(), arguments };
    Ok(Planned::new(SessionPlan::PreparedCommand(execute), "planned anew with its arguments"))
}

/// A statement that has an EXECUTE in it, which no node knows: `execute` is the tree of what it runs.
/// `None` if that is something else.
pub(in crate::planner) fn plan_within(
    execute: Option<&NodeEnum>,
    statement: &Statement,
) -> Result<Option<Planned>, Refusal> {
    let Some(NodeEnum::ExecuteStmt(execute)) = execute else { return Ok(None) };
    let text = statement.text.as_str();
    let tokens = scan(text).map_err(cannot_scan)?;
    let position = with_depth(&tokens)
        .position(|(depth, token)| depth == 0 && token.token == Token::Execute)
        .filter(|position| position + 1 < tokens.len());
    let Some(position) = position else { return Ok(None) };
    let (arguments, next) = match list(text, &tokens, position + 2) {
        Some((arguments, next)) => (arguments.into_iter().map(str::to_owned).collect(), next),
        None => (Vec::new(), position + 2),
    };
    let after = tokens.get(next - 1).and_then(|last| text.get(last.end..)).unwrap_or_default();
    let within = PreparedCommand::Within {
        before: text.get(..tokens[position].start).unwrap_or_default().to_owned(),
        name: execute.name.clone(),
        arguments,
        after: after.to_owned(),
    };
    Ok(Some(Planned::new(
        SessionPlan::PreparedCommand(within),
        "the gateway keeps prepared statements",
    )))
}

pub(super) fn plan_deallocate(deallocate: &DeallocateStmt) -> Planned {
    let name = (!deallocate.isall).then(|| deallocate.name.clone());
    Planned::new(
        SessionPlan::PreparedCommand(PreparedCommand::Deallocate(name)),
        "the gateway keeps prepared statements",
    )
}

/// The text of the prepared statement `name` with its arguments in place of `$n`.
///
/// `types` are those of the parameters, `arguments` as given to EXECUTE, both as SQL. An argument is cast
/// to its type, where that is known.
///
/// Errors: 42601 when the number of arguments is wrong, as PostgreSQL words it.
pub fn bind_arguments(
    name: &str,
    text: &str,
    types: &[String],
    arguments: &[String],
) -> Result<String, Refusal> {
    let tokens = scan(text).map_err(cannot_scan)?;
    let mut parameters = Vec::new();
    for token in &tokens {
        if let Some(number) = token.parameter() {
            let number = number.map_err(|_| no_parameter(token.text))?;
            if number == 0 {
                return Err(no_parameter(token.text));
            }
            parameters.push((token.start, token.end, usize::from(number)));
        }
    }
    let used = parameters.iter().map(|(_, _, number)| *number).max().unwrap_or(0);
    let expected = used.max(types.len());
    // Where there are no parameters, PostgreSQL does not look at arguments.
    if arguments.len() != expected && expected != 0 {
        let message = format!("wrong number of parameters for prepared statement \"{name}\"");
        return Err(Refusal::postgres("42601", message)
            .with_detail(format!("Expected {expected} parameters but got {}.", arguments.len())));
    }
    let mut bound = String::with_capacity(text.len());
    let mut copied = 0;
    for (start, end, number) in parameters {
        bound.push_str(&text[copied..start]);
        let argument = &arguments[number - 1];
        match types.get(number - 1).filter(|declared| !declared.eq_ignore_ascii_case("unknown")) {
            Some(declared) => bound.push_str(&format!("(({argument})::{declared})")),
            None => bound.push_str(&format!("({argument})")),
        }
        copied = end;
    }
    bound.push_str(&text[copied..]);
    Ok(bound)
}

/// Whether each argument of EXECUTE is a constant which PostgreSQL takes for its type, and which means the same
/// if it is cast to that.
pub fn are_constants(arguments: &[String], types: &[String]) -> bool {
    arguments.iter().zip(types).all(|(argument, of)| is_constant(argument, of))
}

fn is_constant(argument: &str, of: &str) -> bool {
    /// Types that whole numbers of any length are assigned to.
    const OF_NUMBERS: [&str; 9] =
        ["int2", "int4", "int8", "numeric", "float4", "float8", "text", "varchar", "bpchar"];
    let Ok(tokens) = scan(argument) else { return false };
    let tokens = match &tokens[..] {
        [sign, number] if matches!(sign.text, "-" | "+") && number.token != Token::Sconst => {
            std::slice::from_ref(number)
        }
        all => all,
    };
    let [token] = tokens else { return false };
    let name = of.strip_prefix("pg_catalog.").unwrap_or_default().trim_matches('"');
    match token.token {
        Token::Sconst | Token::NullP => true,
        Token::Iconst | Token::Fconst => OF_NUMBERS.contains(&name),
        Token::TrueP | Token::FalseP => name == "bool",
        _ => false,
    }
}

/// Whether arguments name parameters of the statement around them.
pub fn name_parameters(arguments: &[String]) -> bool {
    let names = |text: &String| {
        scan(text).is_ok_and(|tokens| tokens.iter().any(|token| token.parameter().is_some()))
    };
    arguments.iter().any(names)
}

/// Whether arguments have queries in them, which PostgreSQL refuses.
pub fn say_queries(arguments: &[String]) -> bool {
    let is_query = |token: &Token| matches!(token, Token::Select | Token::Values);
    let says = |text: &String| {
        scan(text).is_ok_and(|tokens| tokens.iter().any(|token| is_query(&token.token)))
    };
    arguments.iter().any(says)
}

fn no_parameter(written: &str) -> Refusal {
    Refusal::postgres("42P02", format!("there is no parameter {written}"))
}

/// The grammar read the text before, so its scanner does too.
fn cannot_scan(error: pg_query::Error) -> Refusal {
    Refusal::postgres("42601", error.to_string())
}
