//! What a statement's parameters and columns are, asked of a node without running it.
//!
//! Owns: the question and its answer. Never: keeps it (the session does).

use tutti_link::Link;
use tutti_link::connection::told;
use tutti_sql::catalog::NodeId;
use tutti_sql::plan::Access;
use tutti_wire::backend::{self, ColumnDescription};
use tutti_wire::frontend::{Target, put_describe, put_parse, put_sync};

use crate::client::Client;
use crate::client::failure::Failure;
use crate::executor::Executor;

/// Columns of a statement; `None`: it returns no rows.
pub(crate) type Columns = Option<Vec<ColumnDescription>>;

impl Executor<'_> {
    /// Lets node 1 analyse `text`: parameter types and result columns.
    ///
    /// Errors: whatever PostgreSQL's analysis finds. Requires: the pipeline is at rest.
    pub(crate) async fn describe_text(
        &mut self,
        text: &str,
        types: &[u32],
    ) -> Result<(Vec<u32>, Columns), Failure> {
        self.describe_text_on(NodeId::HOME, text, types).await
    }

    /// The same in an open transaction, which keeps nothing of it: analysis locks the tables that a statement writes,
    /// and one that is going to lock them in a stronger mode would wait for others that have come as far, as they
    /// for it.
    ///
    /// Errors and requirement: as there. Then the transaction has failed.
    pub(crate) async fn describe_text_separately(
        &mut self,
        text: &str,
        types: &[u32],
    ) -> Result<(Vec<u32>, Columns), Failure> {
        let link = self.tx.enlist(NodeId::HOME, Access::Read).await?;
        link.put_silent("SAVEPOINT tutti_describes");
        let described = self.describe_text(text, types).await?;
        // Awaited: a session that owes answers counts as one at work, and its client may pause now.
        let link = self.tx.links.at(&NodeId::HOME);
        link.query("ROLLBACK TO SAVEPOINT tutti_describes; RELEASE SAVEPOINT tutti_describes")
            .await?;
        Ok(described)
    }

    pub(crate) async fn describe_text_on(
        &mut self,
        node: NodeId,
        text: &str,
        types: &[u32],
    ) -> Result<(Vec<u32>, Columns), Failure> {
        let link = self.tx.enlist(node, Access::Read).await?;
        link.unnamed = None;
        let types = link.types_here(types);
        let out = link.connection().outgoing();
        put_parse(out, "", text, &types);
        put_describe(out, Target::Statement, "");
        put_sync(out);
        link.connection().flush().await?;
        let link = self.tx.links.at(&node);
        let mut described = read_description(self.client, link).await?;
        described.0 = self.tx.oids().types_to_home(node, &described.0);
        if let Some(columns) = &mut described.1 {
            self.tx.oids().to_home(node, columns);
        }
        Ok(described)
    }
}

/// Reads the answer to a Parse and Describe, in the node's OIDs.
pub(super) async fn read_description(
    client: &mut Client,
    link: &mut Link,
) -> Result<(Vec<u32>, Columns), Failure> {
    let refused_before = link.catch_up().await?;
    let mut described = (Vec::new(), None);
    let mut refused = None;
    loop {
        let frame = link.connection().next_frame().await?;
        match frame.tag() {
            // An error has undone what the transaction has set.
            b'S' => client.report_setting(link, &frame)?,
            b'A' => link.put_notification(client.out(), &frame),
            b't' => described.0 = backend::decode_parameter_description(&frame)?,
            b'T' => described.1 = Some(backend::decode_row_description(&frame)?),
            b'E' => refused = Some(told(&frame)?),
            b'Z' => break,
            _ => (),
        }
    }
    refused_before.map_or(Ok(()), Err)?;
    match refused {
        Some(error) => Err(error.into()),
        None => Ok(described),
    }
}
