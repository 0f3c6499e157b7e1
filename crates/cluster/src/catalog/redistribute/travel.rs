//! Which rows of a table travel from which node to which when its placement changes.
//!
//! Owns: that no row travels that is where it belongs already. Never: moves one.
//! Start reading at [`Travel::between`].

use tutti_sql::catalog::NodeId;

use super::super::placement::PlacementKind;

/// How the rows of all leaves move.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Travel {
    /// Every row is where it belongs already.
    Nothing,
    /// Rows of these nodes are copied to all nodes that are not their own. Nodes other than node 1
    /// are emptied first if they hold nothing that counts.
    CopyEverywhere { sources: Vec<NodeId>, empty_copies: bool },
    /// Each node deletes what the map gives to others: they have it.
    DropForeign { target: PlacementKind },
    /// Each source sends away what the map gives to others.
    SendForeign { sources: Vec<NodeId>, target: PlacementKind, empty_copies: bool },
    /// Rows of node 1, which has them all, are dealt out; the others are emptied.
    DealOut,
    /// Rows of the other nodes go to node 1, which they leave.
    BringHome { sources: Vec<NodeId> },
    /// Node 1 has all rows; the others lose theirs.
    EmptyCopies,
}

impl Travel {
    /// Whether rows are written where they were not.
    pub(super) fn writes_rows(&self) -> bool {
        !matches!(self, Travel::Nothing | Travel::EmptyCopies | Travel::DropForeign { .. })
    }

    /// The nodes that rows leave, or of which they are copied.
    pub(super) fn sources(&self) -> &[NodeId] {
        match self {
            Travel::CopyEverywhere { sources, .. }
            | Travel::SendForeign { sources, .. }
            | Travel::BringHome { sources } => sources,
            Travel::DealOut => &[NodeId::HOME],
            Travel::Nothing | Travel::DropForeign { .. } | Travel::EmptyCopies => &[],
        }
    }

    /// Which rows travel for a change from one placement to another.
    pub(super) fn between(from: &PlacementKind, to: &PlacementKind, nodes: &[NodeId]) -> Self {
        use PlacementKind::{Async, Hash, HashOfSeveral, Home, Replicated, RoundRobin};
        let spread = matches!(from, Hash { .. } | HashOfSeveral { .. } | RoundRobin);
        let sources = if spread { nodes.to_vec() } else { vec![NodeId::HOME] };
        let empty_copies = *from == Home;
        match (from, to) {
            _ if from == to => Travel::Nothing,
            // Every node has all rows before and after.
            (Replicated | Async { .. }, Async { .. }) | (Async { .. }, Replicated) => {
                Travel::Nothing
            }
            (Hash { .. } | HashOfSeveral { .. } | RoundRobin, Home) => Travel::BringHome {
                sources: nodes.iter().copied().filter(|node| *node != NodeId::HOME).collect(),
            },
            (Replicated, Home) => Travel::EmptyCopies,
            (Async { .. }, Home) => Travel::EmptyCopies,
            (_, Home) | (Hash { .. } | HashOfSeveral { .. } | RoundRobin, RoundRobin) => {
                Travel::Nothing
            }
            (Replicated | Async { .. }, Hash { .. } | HashOfSeveral { .. }) => {
                Travel::DropForeign { target: to.clone() }
            }
            (_, Hash { .. } | HashOfSeveral { .. }) => {
                Travel::SendForeign { sources, target: to.clone(), empty_copies }
            }
            (_, Replicated | Async { .. }) => Travel::CopyEverywhere { sources, empty_copies },
            (Home | Replicated | Async { .. }, RoundRobin) => Travel::DealOut,
        }
    }
}

#[cfg(test)]
mod tests {
    use tutti_sql::hash::KeyType;

    use super::*;

    #[test]
    fn rows_travel_only_as_far_as_they_must() {
        let nodes = [NodeId(1), NodeId(2)];
        let by_a = PlacementKind::hash("a".to_owned(), KeyType::Int4);
        let by_b = PlacementKind::hash("b".to_owned(), KeyType::Int4);
        let way = |from: &PlacementKind, to: &PlacementKind| Travel::between(from, to, &nodes);
        assert_eq!(way(&by_a, &by_a), Travel::Nothing);
        assert_eq!(way(&by_a, &PlacementKind::RoundRobin), Travel::Nothing);
        assert_eq!(way(&PlacementKind::Replicated, &PlacementKind::RoundRobin), Travel::DealOut);
        assert_eq!(
            way(&PlacementKind::Replicated, &by_a),
            Travel::DropForeign { target: by_a.clone() }
        );
        assert_eq!(
            way(&by_a, &by_b),
            Travel::SendForeign { sources: nodes.to_vec(), target: by_b, empty_copies: false }
        );
        assert_eq!(
            way(&PlacementKind::Home, &PlacementKind::Replicated),
            Travel::CopyEverywhere { sources: vec![NodeId(1)], empty_copies: true }
        );
    }
}
