//! What a plan asks of the transaction that it runs in.
//!
//! Owns: which plans take a snapshot, which only read several nodes, and of which code may be left for the end.
//! Never: looks at a transaction.
//! Start reading at [`takes_snapshot`].

use tutti_sql::plan::{
    Access, CollectFrom, CopyToPlan, DataPlan, Gather, Plan, RunOn, SchemaPlan, SessionPlan,
    Setting, TuttiCall,
};

/// Whether the plan reads rows of several nodes and does nothing else.
pub(crate) fn reads_several_nodes(plan: &Plan) -> bool {
    match plan {
        Plan::Data(DataPlan::Scatter { access }) => *access == Access::Read,
        Plan::Data(DataPlan::Gather(gather)) => {
            gather.access == Access::Read
                && !gather.locks_rows()
                && matches!(gather.run_on, RunOn::One(_) | RunOn::EachNode)
        }
        Plan::Data(DataPlan::CopyTo(copy)) => !matches!(copy.plan, CopyToPlan::One(..)),
        Plan::Data(DataPlan::Explain(explain)) => {
            explain.analyze && reads_several_nodes(&explain.of.plan)
        }
        _ => false,
    }
}

/// Of such plans: whether all nodes are read, and on the transaction's own connections alone.
pub(super) fn reads_every_node_itself(plan: &Plan) -> bool {
    let of_gather = |gather: &Gather| {
        let takes_all = gather.collects.iter().any(|collect| collect.from == CollectFrom::AllNodes);
        // A receiver imports the snapshot.
        let is_passed_on = gather.in_tables.as_ref().is_some_and(|tables| tables.reads_in_place);
        (takes_all || gather.partial.is_some()) && !is_passed_on && gather.first.is_none()
    };
    match plan {
        Plan::Data(DataPlan::Scatter { .. }) => true,
        Plan::Data(DataPlan::Gather(gather)) => of_gather(gather),
        Plan::Data(DataPlan::CopyTo(copy)) => match &copy.plan {
            CopyToPlan::One(..) => false,
            CopyToPlan::Scatter => true,
            CopyToPlan::Gather(gather) => of_gather(gather),
        },
        Plan::Data(DataPlan::Explain(explain)) => reads_every_node_itself(&explain.of.plan),
        _ => false,
    }
}

/// Whether code that the plan calls may run when its transaction ends: it writes, or declares a cursor.
pub(crate) fn leaves_calls(plan: &Plan) -> bool {
    match plan {
        Plan::Data(DataPlan::One { access, .. }) => *access == Access::Write,
        Plan::Data(DataPlan::Explain(explain)) => explain.analyze && leaves_calls(&explain.of.plan),
        Plan::Data(DataPlan::CopyTo(_) | DataPlan::Cursor { .. } | DataPlan::Refused(_))
        | Plan::Session(_) => false,
        plan => !reads_several_nodes(plan),
    }
}

/// Whether PostgreSQL would take a snapshot for the statement: the others leave a transaction
/// without one.
pub(crate) fn takes_snapshot(plan: &Plan) -> bool {
    !matches!(
        plan,
        Plan::Schema(SchemaPlan::LockEverywhere { .. })
            | Plan::Session(
                SessionPlan::Notification { .. }
                    | SessionPlan::Transaction(_)
                    | SessionPlan::Tutti(TuttiCall::Request(_))
                    | SessionPlan::Empty
                    | SessionPlan::Setting(
                        Setting::Show { .. }
                            | Setting::Set { .. }
                            | Setting::SetLocal { .. }
                            | Setting::Reset { .. }
                            | Setting::ResetAll
                            | Setting::SetConstraints { .. }
                            | Setting::SetTransaction { .. }
                    )
            )
    )
}
