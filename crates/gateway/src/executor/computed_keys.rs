//! Where rows belong whose distribution key is computed.
//!
//! Owns: asking node 1, which computes keys as every node will when it stores the rows. Never: computes one.

use tutti_sql::catalog::{NodeId, Relation};
use tutti_sql::hash::Bucket;
use tutti_sql::plan::{Access, Template};

use super::array_literal::ArrayText;
use super::filled::{Times, fill_template};
use crate::client::failure::Failure;
use crate::executor::Executor;
use crate::plans::request::{Call, Rows};

/// Rows that are asked for together: as many bytes are kept at a time.
const QUESTION_BYTES: usize = 1 << 20;

impl Executor<'_> {
    /// The node of each row of `relation`, given in composite text form. `question`: of the plan, what node 1 is asked.
    ///
    /// Errors: node 1's own, where a key cannot be computed.
    pub(super) async fn nodes_of_computed<'r>(
        &mut self,
        relation: &Relation,
        question: &Template,
        rows: impl Iterator<Item = &'r str>,
    ) -> Result<Vec<NodeId>, Failure> {
        let mut nodes = Vec::new();
        let mut rows = rows.peekable();
        while rows.peek().is_some() {
            let mut asked = ArrayText::default();
            let mut count = 0;
            while asked.len() < QUESTION_BYTES
                && let Some(row) = rows.next()
            {
                asked.push_composite(row);
                count += 1;
            }
            let before = nodes.len();
            nodes.extend(self.ask_for_nodes(relation, question, asked).await?);
            if nodes.len() - before != count {
                return Err(unanswered());
            }
        }
        Ok(nodes)
    }

    async fn ask_for_nodes(
        &mut self,
        relation: &Relation,
        question: &Template,
        rows: ArrayText,
    ) -> Result<Vec<NodeId>, Failure> {
        let map = relation.placement.key_map().ok_or_else(unanswered)?;
        let rows = Rows::Everywhere(vec![rows.into_bytes()]);
        let call = Call::Simple.carrying(rows, self.travelling_bytes_max())?;
        let text = fill_template(question, &Call::Simple, &Times::new());
        let answers = self.internal_rows(NodeId::HOME, Access::Read, &text, &call).await?;
        let bucket = |row: &Vec<Option<bytes::Bytes>>| {
            std::str::from_utf8(row.first()?.as_ref()?).ok()?.parse().ok().map(Bucket)
        };
        let buckets = answers.iter().map(bucket).collect::<Option<Vec<_>>>();
        let buckets = buckets.ok_or_else(unanswered)?;
        buckets.into_iter().map(|bucket| self.node_of(map, bucket)).collect()
    }
}

fn unanswered() -> Failure {
    Failure::error("XX000", "node 1 did not say which buckets keys have")
}
