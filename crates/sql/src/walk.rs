//! The children of a parse tree's node, for reading and for rewriting.
//!
//! Owns: which fields of which node hold expressions, tables and queries.
//! Never: knows what they mean. Names, type names and aliases are not children; a query's parts are
//! children of the node that holds the query.
//! Start reading at the macro: both walkers are made from one list, so they cannot disagree.

/// Makes `children` and its parts for one kind of reference.
macro_rules! walker {
    ($module:ident, $iter:ident, $as_deref:ident, $as_ref:ident, $($mutable:ident)?) => {
        pub(crate) mod $module {
            use pg_query::NodeEnum;
            use pg_query::protobuf::{
                JsonAggConstructor, JsonBehavior, JsonValueExpr, Node, ReturningClause, SelectStmt,
                WindowDef, WithClause,
            };

            /// What is called for each child.
            type Visit<'v, 't> = &'v mut dyn FnMut(&'t $($mutable)? Node);

            /// Calls `visit` for every direct child of `node`.
            pub(crate) fn children<'t>(
                node: &'t $($mutable)? NodeEnum,
                visit: Visit<'_, 't>,
            ) {
                match node {
                    NodeEnum::SelectStmt(n) => select(n, visit),
                    NodeEnum::InsertStmt(n) => {
                        with(n.with_clause.$as_ref(), visit);
                        n.cols.$iter().for_each(&mut *visit);
                        n.select_stmt.$as_deref().into_iter().for_each(&mut *visit);
                        if let Some(n) = n.on_conflict_clause.$as_deref() {
                            if let Some(n) = n.infer.$as_deref() {
                                n.index_elems.$iter().for_each(&mut *visit);
                                n.where_clause.$as_deref().into_iter().for_each(&mut *visit);
                            }
                            n.target_list.$iter().for_each(&mut *visit);
                            n.where_clause.$as_deref().into_iter().for_each(&mut *visit);
                        }
                        returning(n.returning_clause.$as_ref(), visit);
                    }
                    NodeEnum::UpdateStmt(n) => {
                        with(n.with_clause.$as_ref(), visit);
                        n.target_list.$iter().for_each(&mut *visit);
                        n.from_clause.$iter().for_each(&mut *visit);
                        n.where_clause.$as_deref().into_iter().for_each(&mut *visit);
                        returning(n.returning_clause.$as_ref(), visit);
                    }
                    NodeEnum::DeleteStmt(n) => {
                        with(n.with_clause.$as_ref(), visit);
                        n.using_clause.$iter().for_each(&mut *visit);
                        n.where_clause.$as_deref().into_iter().for_each(&mut *visit);
                        returning(n.returning_clause.$as_ref(), visit);
                    }
                    NodeEnum::MergeStmt(n) => {
                        with(n.with_clause.$as_ref(), visit);
                        n.source_relation.$as_deref().into_iter().for_each(&mut *visit);
                        n.join_condition.$as_deref().into_iter().for_each(&mut *visit);
                        n.merge_when_clauses.$iter().for_each(&mut *visit);
                        returning(n.returning_clause.$as_ref(), visit);
                    }
                    NodeEnum::MergeWhenClause(n) => {
                        n.condition.$as_deref().into_iter().for_each(&mut *visit);
                        n.target_list.$iter().for_each(&mut *visit);
                        n.values.$iter().for_each(visit);
                    }
                    NodeEnum::CommonTableExpr(n) => {
                        n.ctequery.$as_deref().into_iter().for_each(&mut *visit);
                        if let Some(n) = n.cycle_clause.$as_deref() {
                            n.cycle_mark_value.$as_deref().into_iter().for_each(&mut *visit);
                            n.cycle_mark_default.$as_deref().into_iter().for_each(visit);
                        }
                    }
                    NodeEnum::JoinExpr(n) => {
                        n.larg.$as_deref().into_iter().for_each(&mut *visit);
                        n.rarg.$as_deref().into_iter().for_each(&mut *visit);
                        n.quals.$as_deref().into_iter().for_each(visit);
                    }
                    NodeEnum::RangeSubselect(n) => {
                        n.subquery.$as_deref().into_iter().for_each(visit);
                    }
                    NodeEnum::RangeFunction(n) => {
                        n.functions.$iter().for_each(&mut *visit);
                        n.coldeflist.$iter().for_each(visit);
                    }
                    NodeEnum::RangeTableSample(n) => {
                        n.relation.$as_deref().into_iter().for_each(&mut *visit);
                        n.args.$iter().for_each(&mut *visit);
                        n.repeatable.$as_deref().into_iter().for_each(visit);
                    }
                    NodeEnum::RangeTableFunc(n) => {
                        n.docexpr.$as_deref().into_iter().for_each(&mut *visit);
                        n.rowexpr.$as_deref().into_iter().for_each(&mut *visit);
                        n.namespaces.$iter().for_each(&mut *visit);
                        n.columns.$iter().for_each(visit);
                    }
                    NodeEnum::RangeTableFuncCol(n) => {
                        n.colexpr.$as_deref().into_iter().for_each(&mut *visit);
                        n.coldefexpr.$as_deref().into_iter().for_each(visit);
                    }
                    NodeEnum::List(n) => n.items.$iter().for_each(visit),
                    NodeEnum::ResTarget(n) => {
                        n.indirection.$iter().for_each(&mut *visit);
                        n.val.$as_deref().into_iter().for_each(visit);
                    }
                    NodeEnum::MultiAssignRef(n) => {
                        n.source.$as_deref().into_iter().for_each(visit);
                    }
                    NodeEnum::SortBy(n) => n.node.$as_deref().into_iter().for_each(visit),
                    NodeEnum::WindowDef(n) => window(Some(&$($mutable)? **n), visit),
                    NodeEnum::GroupingSet(n) => n.content.$iter().for_each(visit),
                    NodeEnum::AExpr(n) => {
                        n.lexpr.$as_deref().into_iter().for_each(&mut *visit);
                        n.rexpr.$as_deref().into_iter().for_each(visit);
                    }
                    NodeEnum::BoolExpr(n) => n.args.$iter().for_each(visit),
                    NodeEnum::AIndirection(n) => {
                        n.arg.$as_deref().into_iter().for_each(&mut *visit);
                        n.indirection.$iter().for_each(visit);
                    }
                    NodeEnum::AIndices(n) => {
                        n.lidx.$as_deref().into_iter().for_each(&mut *visit);
                        n.uidx.$as_deref().into_iter().for_each(visit);
                    }
                    NodeEnum::AArrayExpr(n) => n.elements.$iter().for_each(visit),
                    NodeEnum::CollateClause(n) => n.arg.$as_deref().into_iter().for_each(visit),
                    NodeEnum::TypeCast(n) => n.arg.$as_deref().into_iter().for_each(visit),
                    NodeEnum::FuncCall(n) => {
                        n.args.$iter().for_each(&mut *visit);
                        n.agg_order.$iter().for_each(&mut *visit);
                        n.agg_filter.$as_deref().into_iter().for_each(&mut *visit);
                        window(n.over.$as_deref(), visit);
                    }
                    NodeEnum::NamedArgExpr(n) => n.arg.$as_deref().into_iter().for_each(visit),
                    NodeEnum::SubLink(n) => {
                        n.testexpr.$as_deref().into_iter().for_each(&mut *visit);
                        n.subselect.$as_deref().into_iter().for_each(visit);
                    }
                    NodeEnum::CaseExpr(n) => {
                        n.arg.$as_deref().into_iter().for_each(&mut *visit);
                        n.args.$iter().for_each(&mut *visit);
                        n.defresult.$as_deref().into_iter().for_each(visit);
                    }
                    NodeEnum::CaseWhen(n) => {
                        n.expr.$as_deref().into_iter().for_each(&mut *visit);
                        n.result.$as_deref().into_iter().for_each(visit);
                    }
                    NodeEnum::RowExpr(n) => n.args.$iter().for_each(visit),
                    NodeEnum::CoalesceExpr(n) => n.args.$iter().for_each(visit),
                    NodeEnum::MinMaxExpr(n) => n.args.$iter().for_each(visit),
                    NodeEnum::NullTest(n) => n.arg.$as_deref().into_iter().for_each(visit),
                    NodeEnum::BooleanTest(n) => n.arg.$as_deref().into_iter().for_each(visit),
                    NodeEnum::GroupingFunc(n) => n.args.$iter().for_each(visit),
                    NodeEnum::XmlExpr(n) => {
                        n.named_args.$iter().for_each(&mut *visit);
                        n.args.$iter().for_each(visit);
                    }
                    NodeEnum::XmlSerialize(n) => n.expr.$as_deref().into_iter().for_each(visit),
                    NodeEnum::JsonValueExpr(n) => json_value(Some(&$($mutable)? **n), visit),
                    NodeEnum::JsonIsPredicate(n) => n.expr.$as_deref().into_iter().for_each(visit),
                    NodeEnum::JsonFuncExpr(n) => {
                        json_value(n.context_item.$as_deref(), visit);
                        n.pathspec.$as_deref().into_iter().for_each(&mut *visit);
                        n.passing.$iter().for_each(&mut *visit);
                        json_behavior(n.on_empty.$as_deref(), visit);
                        json_behavior(n.on_error.$as_deref(), visit);
                    }
                    NodeEnum::JsonTable(n) => {
                        json_value(n.context_item.$as_deref(), visit);
                        n.passing.$iter().for_each(&mut *visit);
                        n.columns.$iter().for_each(&mut *visit);
                        json_behavior(n.on_error.$as_deref(), visit);
                    }
                    NodeEnum::JsonTableColumn(n) => {
                        n.columns.$iter().for_each(&mut *visit);
                        json_behavior(n.on_empty.$as_deref(), visit);
                        json_behavior(n.on_error.$as_deref(), visit);
                    }
                    NodeEnum::JsonArgument(n) => json_value(n.val.$as_deref(), visit),
                    NodeEnum::JsonKeyValue(n) => {
                        n.key.$as_deref().into_iter().for_each(&mut *visit);
                        json_value(n.value.$as_deref(), visit);
                    }
                    NodeEnum::JsonObjectConstructor(n) => n.exprs.$iter().for_each(visit),
                    NodeEnum::JsonArrayConstructor(n) => n.exprs.$iter().for_each(visit),
                    NodeEnum::JsonArrayQueryConstructor(n) => {
                        n.query.$as_deref().into_iter().for_each(visit);
                    }
                    NodeEnum::JsonObjectAgg(n) => {
                        json_aggregate(n.constructor.$as_deref(), visit);
                        if let Some(n) = n.arg.$as_deref() {
                            n.key.$as_deref().into_iter().for_each(&mut *visit);
                            json_value(n.value.$as_deref(), visit);
                        }
                    }
                    NodeEnum::JsonArrayAgg(n) => {
                        json_aggregate(n.constructor.$as_deref(), visit);
                        json_value(n.arg.$as_deref(), visit);
                    }
                    NodeEnum::JsonParseExpr(n) => json_value(n.expr.$as_deref(), visit),
                    NodeEnum::JsonScalarExpr(n) => n.expr.$as_deref().into_iter().for_each(visit),
                    NodeEnum::JsonSerializeExpr(n) => json_value(n.expr.$as_deref(), visit),
                    // What the grammar puts into no query, and leaves: names, constants, parameters.
                    _ => (),
                }
            }

            /// The children of a query, set operations flattened.
            pub(crate) fn select<'t>(
                n: &'t $($mutable)? SelectStmt,
                visit: Visit<'_, 't>,
            ) {
                with(n.with_clause.$as_ref(), visit);
                if let Some(n) = n.larg.$as_deref() {
                    select(n, visit);
                }
                if let Some(n) = n.rarg.$as_deref() {
                    select(n, visit);
                }
                n.distinct_clause.$iter().for_each(&mut *visit);
                n.target_list.$iter().for_each(&mut *visit);
                n.from_clause.$iter().for_each(&mut *visit);
                n.where_clause.$as_deref().into_iter().for_each(&mut *visit);
                n.group_clause.$iter().for_each(&mut *visit);
                n.having_clause.$as_deref().into_iter().for_each(&mut *visit);
                n.window_clause.$iter().for_each(&mut *visit);
                n.values_lists.$iter().for_each(&mut *visit);
                n.sort_clause.$iter().for_each(&mut *visit);
                n.limit_offset.$as_deref().into_iter().for_each(&mut *visit);
                n.limit_count.$as_deref().into_iter().for_each(&mut *visit);
            }

            fn with<'t>(n: Option<&'t $($mutable)? WithClause>, visit: Visit<'_, 't>) {
                if let Some(n) = n {
                    n.ctes.$iter().for_each(visit);
                }
            }

            fn returning<'t>(n: Option<&'t $($mutable)? ReturningClause>, visit: Visit<'_, 't>) {
                if let Some(n) = n {
                    n.exprs.$iter().for_each(visit);
                }
            }

            fn window<'t>(n: Option<&'t $($mutable)? WindowDef>, visit: Visit<'_, 't>) {
                if let Some(n) = n {
                    n.partition_clause.$iter().for_each(&mut *visit);
                    n.order_clause.$iter().for_each(&mut *visit);
                    n.start_offset.$as_deref().into_iter().for_each(&mut *visit);
                    n.end_offset.$as_deref().into_iter().for_each(visit);
                }
            }

            fn json_value<'t>(n: Option<&'t $($mutable)? JsonValueExpr>, visit: Visit<'_, 't>) {
                if let Some(n) = n {
                    n.raw_expr.$as_deref().into_iter().for_each(&mut *visit);
                    n.formatted_expr.$as_deref().into_iter().for_each(visit);
                }
            }

            fn json_behavior<'t>(n: Option<&'t $($mutable)? JsonBehavior>, visit: Visit<'_, 't>) {
                if let Some(n) = n {
                    n.expr.$as_deref().into_iter().for_each(visit);
                }
            }

            fn json_aggregate<'t>(
                n: Option<&'t $($mutable)? JsonAggConstructor>,
                visit: Visit<'_, 't>,
            ) {
                if let Some(n) = n {
                    n.agg_filter.$as_deref().into_iter().for_each(&mut *visit);
                    n.agg_order.$iter().for_each(&mut *visit);
                    window(n.over.$as_deref(), visit);
                }
            }
        }
    };
}

walker!(read, iter, as_deref, as_ref,);
walker!(write, iter_mut, as_deref_mut, as_mut, mut);
