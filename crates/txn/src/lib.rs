//! The commit protocol of global transactions, as pure state machines.
//!
//! Owns: when a transaction that wrote on several nodes is decided, what every node must then be
//! told, what the client may be told, how a transaction in doubt is settled, and who may make transactions
//! visible or take snapshots of several nodes at a time; and whom the commit of a change of the schema or of
//! a placement, or of a transaction that has taken rows to other nodes, waits for, cancels or leaves alone. And what is known of a transaction that nodes commit one by
//! one, without any of this. And which instance of a request may commit,
//! and when a gateway that follows takes the lead.
//! Never: touches a socket, a clock, a thread or randomness. What happened arrives as events, what must be
//! done leaves as effects; each effect's documentation says what it means in SQL.
//!
//! Start reading at [`Coordinator::step`], then [`Recovery::step`], then [`Rooms::enter`], then
//! [`PlacementChange::step`]. The protocol in prose, with the table of failures, is
//! `docs/protocol/anchored-commit.md`; that of changes is `docs/protocol/schema-changes.md`.
//!
//! ```
//! use tutti_txn::{ClusterTag, Coordinator, Effect, Event, Form, Gid, NodeId, Terms};
//!
//! let cluster: ClusterTag = "shop".parse()?;
//! let gid = Gid { cluster, incarnation: 4, number: 17, anchor: NodeId(1) };
//! let mut effects = Vec::new();
//! let terms = Terms::of(Form::Anchored);
//! let mut coordinator = Coordinator::begin(gid, terms, [NodeId(2)].into(), &mut effects);
//! assert_eq!(effects, [Effect::Prepare(NodeId(2)), Effect::RecordDecision]);
//!
//! effects.clear(); // The driver performs them; their answers come back as events:
//! coordinator.step(Event::VotedYes(NodeId(2)), &mut effects);
//! coordinator.step(Event::DecisionRecorded, &mut effects);
//! assert_eq!(effects, [Effect::WaitForCauses]);
//! # Ok::<(), tutti_txn::GidError>(())
//! ```

pub mod coordinator;
pub mod decision;
pub mod following;
pub mod gid;
pub mod in_application;
pub mod moved_rows;
pub mod node_by_node;
pub mod placement_change;
pub mod recovery;
pub mod request_family;
pub mod rooms;
pub mod tenure;
pub mod vote_order;
pub mod wait_graph;

pub use coordinator::{AbortCause, Coordinator, Effect, Event, Form, Outcome, Terms};
pub use decision::{Decision, UnknownDecision};
pub use following::Following;
pub use gid::{ClusterTag, Gid, GidError, NodeId};
pub use in_application::InApplication;
pub use node_by_node::NodeByNode;
pub use placement_change::PlacementChange;
pub use recovery::Recovery;
pub use rooms::{Room, Rooms};
pub use tenure::Tenure;
pub use vote_order::VoteOrder;
pub use wait_graph::WaitGraph;
