//! The short way for BEGIN, COMMIT and ROLLBACK: without taking their messages apart.
//!
//! Owns: which of them can take it, and the answers around theirs in the extended protocol.
//! Never: begins or ends a transaction (`commit` does); recognises a flight (`fast_path` does).
//! Start reading at [`Session::take_control`].

use std::sync::Arc;

use tutti_sql::plan::{Leaves, Plan, Planned, TransactionControl};
use tutti_sql::statement::Statement;
use tutti_wire::backend::put_bare;

use super::Session;
use crate::client::ClientError;
use crate::plans::request::Call;
use crate::transaction::named::PreparedStatement;
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

/// By which messages.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Told {
    /// A Query.
    Query,
    /// The execution of a prepared statement; whether its portal is described.
    Prepared { describes: bool },
    /// The same from its Parse on.
    Unnamed { describes: bool },
}

impl Control {
    /// Whether it begins a transaction where there is none, or ends one that goes on.
    pub(super) fn is_plain(&self, transaction: &Transaction) -> bool {
        let Plan::Transaction(control) = &self.planned.plan else { return false };
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
        is_expected && self.planned.leaves == Leaves::default()
    }
}

impl Session {
    /// Carries it out. False: it is to be taken the long way, and nothing was done.
    pub(super) async fn take_control(&mut self, control: Control) -> Result<bool, ClientError> {
        let Control { statement, planned, len, told } = control;
        self.tx.activity.end_plan();
        let written = self.client.written();
        if told != Told::Query {
            let out = self.client.out();
            if matches!(told, Told::Unnamed { .. }) {
                put_bare(out, b'1');
            }
            put_bare(out, b'2');
            if let Told::Prepared { describes: true } | Told::Unnamed { describes: true } = told {
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
            Told::Prepared { .. } => (),
            Told::Unnamed { .. } => {
                let id = self.next_statement_id();
                let parsed = PreparedStatement::parsed(id, Some(statement), Vec::new());
                self.tx.statements.insert(String::new(), parsed);
            }
        }
        let ran = ran.map(|done| self.tell(done));
        self.end_statement(ran).await?;
        Ok(true)
    }
}
