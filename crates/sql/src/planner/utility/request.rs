//! Calls about requests: `tutti_begin('request', 1)` and its like.
//!
//! Owns: reading their arguments. Never: reads a parameter's value.

use pg_query::NodeEnum;
use pg_query::protobuf::{FuncCall, Node, a_const};

use crate::plan::{InstanceNamed, RequestCall, Value};
use crate::planner::syntax::string;

/// What a call of this name asks for; `None` for all others, and for arguments that it does not take.
pub(super) fn call(name: &str, call: &FuncCall) -> Option<RequestCall> {
    let values: Option<Vec<Value>> = call.args.iter().map(value).collect();
    let instance = |family: &Value, number: &Value| InstanceNamed {
        family: family.clone(),
        number: number.clone(),
    };
    Some(match (name, values?.as_slice()) {
        ("tutti_begin", [family, number]) => {
            RequestCall::Begin { instance: instance(family, number) }
        }
        ("tutti_prepare", [family, number, request, result]) => RequestCall::Prepare {
            instance: instance(family, number),
            request: request.clone(),
            result: result.clone(),
        },
        ("tutti_remember", [result]) => RequestCall::Remember { result: result.clone() },
        ("tutti_commit", []) => RequestCall::Commit { instance: None },
        ("tutti_commit", [family, number]) => {
            RequestCall::Commit { instance: Some(instance(family, number)) }
        }
        ("tutti_request", [family]) => RequestCall::Look { family: family.clone() },
        _ => return None,
    })
}

/// A literal or parameter, perhaps cast to what it is anyway.
fn value(node: &Node) -> Option<Value> {
    const PLAIN: [&str; 5] = ["text", "varchar", "int2", "int4", "int8"];
    match node.node.as_ref()? {
        NodeEnum::TypeCast(cast) => {
            let name = cast.type_name.as_ref().and_then(|name| string(name.names.last()?))?;
            PLAIN.contains(&name).then(|| value(cast.arg.as_ref()?)).flatten()
        }
        NodeEnum::ParamRef(parameter) => {
            Some(Value::Parameter(u16::try_from(parameter.number).ok()?.checked_sub(1)?))
        }
        NodeEnum::AConst(constant) if constant.isnull => Some(Value::Null),
        NodeEnum::AConst(constant) => match constant.val.as_ref()? {
            a_const::Val::Sval(text) => Some(Value::Text(text.sval.clone())),
            a_const::Val::Ival(number) => Some(Value::Text(number.ival.to_string())),
            // Numbers that are too large for an integer.
            a_const::Val::Fval(number) => Some(Value::Text(number.fval.clone())),
            _ => None,
        },
        _ => None,
    }
}
