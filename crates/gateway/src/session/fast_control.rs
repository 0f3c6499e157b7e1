//! The short way for BEGIN, COMMIT and ROLLBACK: without taking their messages apart.
//!
//! Owns: which of them can take it, and the answers around theirs in the extended protocol.
//! Never: begins or ends a transaction (`commit` does); recognises a flight (`fast_path` does).
//! Start reading at [`Session::take_control`].

use std::collections::BTreeSet;
use std::sync::Arc;

use tutti_link::pool::link::StatementId;
use tutti_sql::plan::{Plan, Planned, Residue, SessionPlan, TransactionControl};
use tutti_sql::statement::Statement;
use tutti_wire::backend::put_bare;
use tutti_wire::frontend::Arguments;

use super::Session;
use crate::client::ClientError;
use crate::plans::request::Call;
use crate::transaction::named::{PendingPortal, Portal};
use crate::transaction::{Mode, Transaction};

/// One of these statements, as the client has sent it.
#[derive(Clone, Debug)]
pub(super) struct Control {
    pub(super) statement: Arc<Statement>,
    pub(super) planned: Arc<Planned>,
    /// Bytes of its messages.
    pub(super) len: usize,
    pub(super) told: Told,
}

/// Which messages it is.
#[derive(Clone, Debug)]
pub(super) enum Told {
    /// A Query.
    Query,
    /// The execution of a statement from its Bind on.
    Execution {
        /// The prepared statement's name and which one it is; `None`: its Parse comes first, and it is the
        /// unnamed one.
        prepared: Option<(String, StatementId)>,
        /// Its portal is described.
        describes: bool,
    },
}

impl Control {
    /// Whether it begins a transaction where there is none, or ends one that goes on.
    pub(super) fn is_plain(&self, transaction: &Transaction) -> bool {
        let Plan::Session(SessionPlan::Transaction(control)) = &self.planned.plan else {
            return false;
        };
        let is_expected = match control {
            TransactionControl::Begin { .. } => transaction.mode == Mode::None,
            TransactionControl::Commit { chain } | TransactionControl::Rollback { chain } => {
                transaction.mode == Mode::Explicit && !chain
            }
            TransactionControl::Savepoint(_)
            | TransactionControl::Release(_)
            | TransactionControl::RollbackTo(_)
            | TransactionControl::Prepare(_)
            | TransactionControl::EndPrepared(_) => false,
        };
        is_expected && self.planned.residue == Residue::default()
    }
}

impl Session {
    /// Carries it out. False: it is to be taken the long way, and nothing was done.
    pub(super) async fn take_control(&mut self, control: Control) -> Result<bool, ClientError> {
        let Control { statement, planned, len, told } = control;
        self.tx.activity.plan.end();
        let written = self.client.written();
        if let Told::Execution { prepared, describes } = &told {
            let out = self.client.out();
            if prepared.is_none() {
                put_bare(out, b'1');
            }
            put_bare(out, b'2');
            if *describes {
                put_bare(out, b'n');
            }
        }
        let ran = self.execute(&planned, &statement.text, &Call::Simple).await;
        if self.is_unsent(&ran)
            && let Some(start) = self.client.said_again(written)
        {
            self.client.take_back(start);
            return Ok(false);
        }
        self.client.skip(len);
        match told {
            Told::Query => {
                self.tx.portals.remove("");
                self.tx.statements.remove("");
            }
            Told::Execution { prepared, .. } => {
                let (name, id) = prepared.unwrap_or_else(|| {
                    (String::new(), self.put_unnamed(statement.clone(), Vec::new()))
                });
                if ran.is_ok() && self.tx.transaction.is_open() {
                    // The portal of BEGIN is the transaction's, and has run.
                    let catalog = self.tx.catalog.clone();
                    let call =
                        Call::Extended { types: Vec::new(), arguments: Arguments::default() };
                    let pending = PendingPortal {
                        statement: name,
                        id,
                        planned,
                        catalog,
                        scope_changes: self.tx.scope_state.changes,
                        named: BTreeSet::new(),
                        parsed: statement,
                        call,
                        writes: self.tx.writes,
                    };
                    self.tx.portals.insert(String::new(), Portal::Finished(Arc::new(pending)));
                }
            }
        }
        let ran = ran.map(|done| self.tell(done));
        self.end_statement(ran).await?;
        Ok(true)
    }
}
