//! What PostgreSQL calls an output column that has no AS: `FigureColname` of its `parse_target.c`.
//!
//! Owns: that rule, for every expression of its grammar.
//! Never: looks at what the expression's tables hold.

use pg_query::NodeEnum;
use pg_query::protobuf::{
    JsonExprOp, MinMaxOp, Node, ResTarget, SqlValueFunctionOp, SubLink, SubLinkType, XmlExprOp,
};

use super::syntax::string;

/// The name of an expression's column.
pub(super) fn figure(expression: &NodeEnum) -> &str {
    suggestion(expression).map_or("?column?", |(name, _)| name)
}

/// The name that an output has of its own: not of the column that it is nothing but.
pub(super) fn own(target: &ResTarget) -> Option<&str> {
    match (target.name.as_str(), target.val.as_ref()?.node.as_ref()?) {
        ("", NodeEnum::ColumnRef(_)) => None,
        ("", value) => Some(figure(value)),
        (name, _) => Some(name),
    }
}

/// How good a name is: a weak one yields to that of the expression around it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Strength {
    Weak,
    Strong,
}

fn inner(node: Option<&Node>) -> Option<(&str, Strength)> {
    suggestion(node?.node.as_ref()?)
}

fn suggestion(expression: &NodeEnum) -> Option<(&str, Strength)> {
    let name = match expression {
        NodeEnum::ColumnRef(reference) => reference.fields.iter().rev().find_map(string)?,
        NodeEnum::AIndirection(part) => match part.indirection.iter().rev().find_map(string) {
            Some(field) => field,
            None => return inner(part.arg.as_deref()),
        },
        NodeEnum::FuncCall(call) => call.funcname.last().and_then(string)?,
        NodeEnum::AExpr(of) if of.kind() == pg_query::protobuf::AExprKind::AexprNullif => "nullif",
        NodeEnum::TypeCast(cast) => {
            let named = inner(cast.arg.as_deref());
            if let Some((_, Strength::Strong)) = named {
                return named;
            }
            let type_name = cast.type_name.as_ref().and_then(|name| string(name.names.last()?));
            return type_name.map(|name| (name, Strength::Weak)).or(named);
        }
        NodeEnum::CollateClause(of) => return inner(of.arg.as_deref()),
        NodeEnum::GroupingFunc(_) => "grouping",
        NodeEnum::SubLink(link) => return of_sublink(link),
        NodeEnum::CaseExpr(case) => {
            let named = inner(case.defresult.as_deref());
            return match named {
                Some((_, Strength::Strong)) => named,
                _ => Some(("case", Strength::Weak)),
            };
        }
        NodeEnum::AArrayExpr(_) => "array",
        NodeEnum::RowExpr(_) => "row",
        NodeEnum::CoalesceExpr(_) => "coalesce",
        NodeEnum::MinMaxExpr(of) => match of.op() {
            MinMaxOp::IsGreatest => "greatest",
            MinMaxOp::IsLeast => "least",
            MinMaxOp::Undefined => return None,
        },
        NodeEnum::SqlvalueFunction(of) => of_keyword(of.op())?,
        NodeEnum::XmlExpr(of) => match of.op() {
            XmlExprOp::IsXmlconcat => "xmlconcat",
            XmlExprOp::IsXmlelement => "xmlelement",
            XmlExprOp::IsXmlforest => "xmlforest",
            XmlExprOp::IsXmlparse => "xmlparse",
            XmlExprOp::IsXmlpi => "xmlpi",
            XmlExprOp::IsXmlroot => "xmlroot",
            XmlExprOp::IsXmlserialize => "xmlserialize",
            XmlExprOp::IsDocument | XmlExprOp::Undefined => return None,
        },
        NodeEnum::XmlSerialize(_) => "xmlserialize",
        NodeEnum::JsonParseExpr(_) => "json",
        NodeEnum::JsonScalarExpr(_) => "json_scalar",
        NodeEnum::JsonSerializeExpr(_) => "json_serialize",
        NodeEnum::JsonObjectConstructor(_) => "json_object",
        NodeEnum::JsonArrayConstructor(_) | NodeEnum::JsonArrayQueryConstructor(_) => "json_array",
        NodeEnum::JsonObjectAgg(_) => "json_objectagg",
        NodeEnum::JsonArrayAgg(_) => "json_arrayagg",
        NodeEnum::JsonFuncExpr(of) => match of.op() {
            JsonExprOp::JsonExistsOp => "json_exists",
            JsonExprOp::JsonQueryOp => "json_query",
            JsonExprOp::JsonValueOp => "json_value",
            JsonExprOp::JsonTableOp | JsonExprOp::Undefined => return None,
        },
        _ => return None,
    };
    Some((name, Strength::Strong))
}

fn of_sublink(link: &SubLink) -> Option<(&str, Strength)> {
    match link.sub_link_type() {
        SubLinkType::ExistsSublink => Some(("exists", Strength::Strong)),
        SubLinkType::ArraySublink => Some(("array", Strength::Strong)),
        SubLinkType::ExprSublink => {
            let Some(NodeEnum::SelectStmt(select)) = &link.subselect.as_ref()?.node else {
                return None;
            };
            // Of a set operation the leftmost query's column counts, and of VALUES its own name.
            let mut query = &**select;
            while let Some(left) = &query.larg {
                query = left;
            }
            if !query.values_lists.is_empty() {
                return Some(("column1", Strength::Strong));
            }
            let Some(NodeEnum::ResTarget(target)) = &query.target_list.first()?.node else {
                return None;
            };
            match target.name.as_str() {
                "" => inner(target.val.as_deref()),
                name => Some((name, Strength::Strong)),
            }
        }
        _ => None,
    }
}

fn of_keyword(function: SqlValueFunctionOp) -> Option<&'static str> {
    use SqlValueFunctionOp as Op;
    Some(match function {
        Op::SvfopCurrentDate => "current_date",
        Op::SvfopCurrentTime | Op::SvfopCurrentTimeN => "current_time",
        Op::SvfopCurrentTimestamp | Op::SvfopCurrentTimestampN => "current_timestamp",
        Op::SvfopLocaltime | Op::SvfopLocaltimeN => "localtime",
        Op::SvfopLocaltimestamp | Op::SvfopLocaltimestampN => "localtimestamp",
        Op::SvfopCurrentRole => "current_role",
        Op::SvfopCurrentUser => "current_user",
        Op::SvfopUser => "user",
        Op::SvfopSessionUser => "session_user",
        Op::SvfopCurrentCatalog => "current_catalog",
        Op::SvfopCurrentSchema => "current_schema",
        Op::SqlvalueFunctionOpUndefined => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(expression: &str) -> String {
        let tree = crate::statement::parse(&format!("SELECT {expression}")).unwrap().pop().unwrap();
        let NodeEnum::SelectStmt(select) = tree.tree else { panic!("{expression}") };
        let Some(NodeEnum::ResTarget(target)) = &select.target_list[0].node else {
            panic!("{expression}")
        };
        figure(target.val.as_ref().unwrap().node.as_ref().unwrap()).to_owned()
    }

    /// What PostgreSQL 15 answered.
    #[test]
    fn names_are_those_of_postgresql() {
        for (expression, expected) in NAMES {
            assert_eq!(name(expression), expected, "{expression}");
        }
    }

    const NAMES: [(&str, &str); 24] = [
        ("1", "?column?"),
        ("1 + 1", "?column?"),
        ("nullif(1, 2)", "nullif"),
        ("1::int", "int4"),
        ("(1 + 1)::numeric", "numeric"),
        ("upper('a')::varchar", "upper"),
        ("(ARRAY[1, 2])[1]", "array"),
        ("ARRAY[1, 2]", "array"),
        ("ARRAY(SELECT 1)", "array"),
        ("EXISTS (SELECT 1)", "exists"),
        ("(SELECT 1 AS one)", "one"),
        ("(SELECT 1)", "?column?"),
        ("(VALUES (1))", "column1"),
        ("CASE WHEN true THEN 1 END", "case"),
        ("CASE WHEN true THEN 1 ELSE abs(2) END", "abs"),
        ("CASE WHEN true THEN 1 ELSE 2::int END", "case"),
        ("coalesce(1, 2)", "coalesce"),
        ("greatest(1, 2)", "greatest"),
        ("ROW(1, 2)", "row"),
        ("current_date", "current_date"),
        ("'a' COLLATE \"C\"", "?column?"),
        ("extract(year FROM date '2020-01-01')", "extract"),
        ("1 IS NULL", "?column?"),
        ("true AND false", "?column?"),
    ];
}
