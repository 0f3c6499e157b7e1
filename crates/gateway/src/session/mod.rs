//! One client's session: its messages in, answers out.
//!
//! Owns: the state of the protocol, of the transaction, of settings, prepared statements, portals
//! and cursors, and one link per node it has used.
//! Never: decides where a statement runs, or in which steps a commit goes.
//! Start reading at [`Session::run`]; `simple` and `extended` are the two protocols.

mod begun_with;
mod code_at_commit;
mod commit;
mod extended;
mod fast_path;
mod global_commit;
mod isolation;
mod lending;
mod moved_rows;
mod pause;
mod placement_change;
mod planning;
mod prepared;
mod processes;
mod settings;
mod simple;
mod sql_statements;
mod transaction;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tutti_sql::catalog::{Catalog, NameScope, NodeId};
use tutti_sql::plan::{Access, Leaves};
use tutti_wire::backend::{put_authentication_ok, put_backend_key_data};
use tutti_wire::error_fields::ErrorFields;

use begun_with::BegunWith;
pub(crate) use code_at_commit::{CHANGES, RUN_DEFERRED, UNDO_DEFERRED, keeps_order, may_be_mended};
pub(crate) use isolation::takes_snapshot;
pub(crate) use lending::{changes_search_paths, changes_what_sessions_begin_with};
pub use prepared::{Portal, PreparedStatement};
pub(crate) use processes::signals;
pub use settings::{IdleTimeouts, Settings};
pub(crate) use settings::{is_own_setting, is_scope_setting};
pub(crate) use transaction::Level;
pub use transaction::{Characteristics, Mode, Transaction};
use tutti_link::pool::link::StatementId;
use tutti_link::pool::links::Links;

use crate::client::failure::{Failure, as_fatal};
use crate::client::identity::Identity;
use crate::client::{Client, ClientError};
use crate::executor::Cursor;
use crate::plans::Turn;
use crate::registry::Registry;
use crate::registry::activity::{Activity, TERMINATED, TERMINATED_MESSAGE};
use tutti_cluster::catalog::publisher::Starving;
use tutti_link::connection::Credentials;
use tutti_link::pool::backends::Workers;
use tutti_link::pool::{Permit, Share};

const IDLE_IN_TRANSACTION: &str = "terminating connection due to idle-in-transaction timeout";
const IDLE_SESSION: &str = "terminating connection due to idle-session timeout";

/// A client's session.
pub struct Session {
    pub(crate) registry: Arc<Registry>,
    pub(crate) client: Client,
    user: String,
    /// The role's number on node 1.
    role: u32,
    /// What the role and the database gave it at its login.
    begun_with: BegunWith,
    /// What connections to nodes are opened with for this session.
    credentials: Credentials,
    number: u64,
    pub(crate) process_id: i32,
    pub(crate) activity: Arc<Activity>,
    /// Where it is noted which backends work for it.
    workers: Arc<Workers>,
    /// What its role may have at once.
    share: Share,
    /// The right to have links.
    permit: Option<Permit>,
    /// Connections that are borrowed at the moment.
    pub(crate) links: Links,
    /// What binds which of them to the session beyond its transaction.
    bindings: BTreeMap<NodeId, String>,
    /// Nodes that a connection was borrowed to since the last ones went back.
    borrowed: BTreeSet<NodeId>,
    /// Why the session cannot go on, if it cannot.
    ended_by: Option<ErrorFields>,
    /// A statement that nobody has planned as one has changed names of others.
    renamed: bool,
    /// What its statements may have left there since they were borrowed.
    leaves: Leaves,
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) scope: NameScope,
    pub(crate) transaction: Transaction,
    pub(crate) settings: Settings,
    pub(crate) statements: HashMap<String, PreparedStatement>,
    pub(crate) portals: HashMap<String, Portal>,
    /// SQL cursors, by name.
    pub(crate) cursors: HashMap<String, Cursor>,
    scope_changes: u64,
    /// The schema has changed since names were looked up, in a cluster of one node's tables, where they
    /// do not matter; or node 1 could not be asked. The next statement to which they matter asks.
    scope_is_stale: bool,
    /// How long it may be idle has to be asked too, which matters also where all is on node 1.
    settings_are_stale: bool,
    /// The transaction has changed it, and must look before it uses a name.
    scope_is_due: bool,
    /// Code has set what names depend on.
    scope_is_stale_by_settings: bool,
    /// New sessions may begin with other settings or rights than the pool's connections have.
    changed_defaults: bool,
    planning: planning::Planning,
    /// Its statement has been overtaken by changes of the schema again and again.
    starving: Option<Starving>,
    /// The right to have the tree of a large text.
    reading: Option<Turn>,
    pub(crate) listening: bool,
    /// It listens on node 1 only, for there was nothing on other nodes when it began to.
    pub(crate) hears_node_1_alone: bool,
    /// What the statement at hand runs on node 1 that the gateway does not see.
    pub(crate) accounting: Option<crate::executor::unseen::Accounting>,
    /// Of [`Shared::path_changes`], those that its names were looked up behind.
    seen_path_changes: u64,
    /// The statement at hand is a part of the client's, which is not told of its end.
    pub(crate) is_part: bool,
    /// Whether the statement at hand takes a snapshot; LOCK TABLE and its kin do not.
    pub(crate) takes_snapshot: bool,
    pipeline: extended::Pipeline,
    next_statement: StatementId,
}

impl Session {
    /// Begins the session of a client that has logged in: opens node 1 as the client's role, and passes on what
    /// that says of itself. `startup`: settings
    /// of its startup packet, names and values. `renewal`: the pool's, from before the login. `None`: refused, and the client has
    /// been told.
    pub async fn open(
        registry: Arc<Registry>,
        client: Client,
        identity: Identity,
        startup: Vec<(String, String)>,
        renewal: u64,
    ) -> Result<Option<Self>, ClientError> {
        let number = registry.next_session();
        let (process_id, secret, workers) = registry.backends.register(number, &identity.user);
        // Names are looked up behind this.
        let seen_path_changes = registry.path_changes.load(Ordering::SeqCst);
        let share = registry.pool.share(identity.role, identity.is_superuser);
        let mut session = Self {
            share,
            activity: registry.activities.register(process_id, Arc::downgrade(client.stream())),
            catalog: registry.cluster.catalog(),
            registry,
            client,
            user: identity.user,
            role: identity.role,
            credentials: identity.credentials,
            begun_with: BegunWith::new(identity.settings, renewal),
            number,
            process_id,
            workers,
            permit: None,
            links: Links::default(),
            bindings: BTreeMap::new(),
            borrowed: BTreeSet::new(),
            ended_by: None,
            renamed: false,
            leaves: Leaves::default(),
            scope: NameScope::default(),
            transaction: Transaction::default(),
            settings: Settings::of_startup(startup),
            statements: HashMap::new(),
            portals: HashMap::new(),
            cursors: HashMap::new(),
            scope_changes: 0,
            scope_is_stale: false,
            settings_are_stale: false,
            scope_is_due: false,
            scope_is_stale_by_settings: false,
            changed_defaults: false,
            planning: planning::Planning::default(),
            starving: None,
            reading: None,
            listening: false,
            hears_node_1_alone: false,
            accounting: None,
            is_part: false,
            seen_path_changes,
            takes_snapshot: true,
            pipeline: extended::Pipeline::default(),
            next_statement: 0,
        };
        match session.greet(secret).await {
            Ok(()) => {
                session.return_links().await?;
                Ok(Some(session))
            }
            Err(Failure::Client(error)) => Err(error),
            Err(Failure::Statement(error)) => {
                session.client.put_error(&as_fatal(*error));
                session.client.flush().await?;
                Ok(None)
            }
        }
    }

    async fn greet(&mut self, secret: i32) -> Result<(), Failure> {
        let admitted = self.registry.pool.admit_login(&self.share).await;
        self.permit = Some(admitted.map_err(|full| Failure::from(full.to_fields()))?);
        self.link(NodeId::HOME).await?;
        self.refresh_scope().await?;
        let parameters = self.link(NodeId::HOME).await?.connection().parameters().to_vec();
        let process_id = self.process_id;
        put_authentication_ok(self.client.out());
        for (name, value) in parameters {
            self.client.report(name, value);
        }
        self.client.put_reports();
        put_backend_key_data(self.client.out(), process_id, secret);
        self.client.put_ready(self.transaction.status());
        Ok(())
    }

    /// Serves the client until it leaves.
    pub async fn run(mut self) -> Result<(), ClientError> {
        loop {
            if self.pipeline.is_at_rest() {
                self.activity.end_plan();
            }
            self.look_at_links();
            self.return_links().await?;
            self.reading = None;
            self.activity.end_message();
            if !self.wait_for_message().await? {
                break;
            }
            self.activity.begin_message();
            if self.hears_node_1_alone {
                self.listen_further().await;
            }
            if self.take_fast_path().await? {
                continue;
            }
            let Some(frame) = self.client.next_frame().await? else { break };
            match frame.tag() {
                b'Q' => self.simple_query(&frame).await?,
                b'P' | b'B' | b'D' | b'E' | b'C' | b'H' | b'S' => {
                    self.extended_message(&frame).await?;
                }
                b'X' => {
                    // A client that says goodbye behind its questions still reads the answers.
                    self.client.flush().await?;
                    break;
                }
                // Left over from a COPY that failed: the protocol says to ignore them.
                b'd' | b'c' | b'f' => (),
                b'F' => self.function_call(&frame).await?,
                tag => {
                    let message = format!("invalid frontend message type {tag}");
                    self.client.put_error(&ErrorFields::fatal("08P01", message));
                    self.client.flush().await?;
                    break;
                }
            }
        }
        Ok(())
    }

    /// Waits until the client's next message is there. False: the session is over, by whoever's will.
    async fn wait_for_message(&mut self) -> Result<bool, ClientError> {
        let is_outside = self.transaction.mode == Mode::None && self.pipeline.is_at_rest();
        if let Some(why) = self.ended_by.take() {
            return self.send_away(&why).await;
        }
        if (is_outside && self.registry.is_draining()) || self.activity.is_terminated() {
            return self.send_away(&ErrorFields::fatal(TERMINATED, TERMINATED_MESSAGE)).await;
        }
        if self.client.has_frame() {
            return Ok(true);
        }
        let idle = self.settings.idle;
        let (timeout, sqlstate, why) = match self.transaction.mode {
            Mode::Explicit => (idle.in_transaction, "25P03", IDLE_IN_TRANSACTION),
            Mode::None | Mode::Implicit => (idle.outside, "57P05", IDLE_SESSION),
        };
        loop {
            let waited = if !self.pipeline.is_at_rest() {
                let activity = self.activity.clone();
                wait(self.wait_for_client_or_answer(), &activity, timeout).await
            } else if self.listening {
                let activity = self.activity.clone();
                wait(self.wait_for_client_or_notification(), &activity, timeout).await
            } else {
                wait(self.client.wait_for_frame(), &self.activity, timeout).await
            };
            match waited {
                Waited::Message(is_there) => return is_there,
                Waited::TooLong => return self.send_away(&ErrorFields::fatal(sqlstate, why)).await,
                Waited::LookUp => {
                    if is_outside && self.hears_node_1_alone {
                        self.listen_further().await;
                    }
                    if let Some(why) = self.ended_by.take() {
                        return self.send_away(&why).await;
                    }
                    if (is_outside && self.registry.is_draining()) || self.activity.is_terminated()
                    {
                        return self
                            .send_away(&ErrorFields::fatal(TERMINATED, TERMINATED_MESSAGE))
                            .await;
                    }
                }
            }
        }
    }

    /// Once other nodes have tables, their triggers notify there.
    async fn listen_further(&mut self) {
        self.refresh_catalog();
        if !self.catalog.is_solo()
            && self.transaction.mode == Mode::None
            && self.pipeline.is_at_rest()
        {
            self.listen_everywhere_or_end().await;
        }
    }

    /// Who cannot be told what it listens to is not left to wait for it.
    pub(super) async fn listen_everywhere_or_end(&mut self) {
        // Another connection to node 1 would know of no channel.
        let has_home = self.links.get(&NodeId::HOME).is_some_and(|home| !home.is_broken());
        let listens = match has_home {
            true => self.listen_everywhere().await,
            false => Err(Failure::error("08006", "connection to node n1 lost behind the commit")),
        };
        if let Err(failure) = listens {
            tracing::info!(?failure, "a client listens, and cannot on every node");
            let message = "connection to a node lost, and with it the session's channels";
            self.ended_by.get_or_insert(ErrorFields::fatal("57P01", message));
        }
    }

    /// Tells the client that the session ends, and ends it.
    async fn send_away(&mut self, why: &ErrorFields) -> Result<bool, ClientError> {
        self.client.put_error(why);
        self.client.flush().await?;
        Ok(false)
    }

    /// The same; passes on notifications meanwhile.
    async fn wait_for_client_or_notification(&mut self) -> Result<bool, ClientError> {
        loop {
            // What came while the gateway asked something of its own, behind the last answer too.
            self.pass_notifications();
            self.client.flush().await?;
            // Answers that nobody has read yet must not be taken for something else.
            let busy = self.links.iter().find(|(_, link)| !link.is_quiet()).map(|(node, _)| *node);
            if let Some(node) = busy {
                let link = self.links.get_mut(&node).expect("just found");
                if let Err(error) = link.come_to_rest().await {
                    tracing::debug!(%node, %error, "a node is gone while a client listens");
                    return self.end_listening(node).await;
                }
                continue;
            }
            let (node, frame) = tokio::select! {
                is_there = self.client.wait_for_frame() => return is_there,
                frame = self.links.next_frame() => frame,
            };
            let Some(link) = self.links.get_mut(&node) else { continue };
            match frame {
                Ok(frame) if frame.tag() == b'N' => {
                    self.client.out().extend_from_slice(frame.as_bytes());
                }
                Ok(frame) if frame.tag() == b'A' => {
                    link.put_notification(self.client.out(), &frame);
                }
                Ok(frame) if frame.tag() == b'E' => return self.end_listening(node).await,
                Ok(_) => (),
                Err(error) => {
                    tracing::debug!(%node, %error, "a node is gone while a client listens");
                    return self.end_listening(node).await;
                }
            }
        }
    }

    /// A connection that listened is lost: the client must know, for it may have missed something.
    async fn end_listening(&mut self, node: NodeId) -> Result<bool, ClientError> {
        self.links.remove(&node);
        self.end_if_bound(node);
        if let Some(why) = self.ended_by.take() {
            self.client.put_error(&why);
        }
        self.client.flush().await?;
        Ok(false)
    }

    /// Notifications that came in answers to the gateway's own queries.
    fn pass_notifications(&mut self) {
        for link in self.links.values_mut() {
            for frame in link.connection().take_notifications() {
                link.put_notification(self.client.out(), &frame);
            }
        }
    }

    /// Which node this session prefers where any will do: one it has used in this transaction, else
    /// one that spreads sessions over nodes, of those that may be read.
    pub(crate) fn any_node(&self) -> NodeId {
        if let Some((node, _)) = self.transaction.nodes.first_key_value() {
            return *node;
        }
        let nodes = &self.catalog.nodes;
        let index = usize::try_from(self.number).unwrap_or(0) % nodes.len();
        let is_open = |node: &NodeId| self.registry.cluster.nodes.is_open(*node);
        let mut in_turn = nodes[index..].iter().chain(&nodes[..index]).copied();
        in_turn.find(is_open).unwrap_or(nodes[index])
    }

    /// Asks node 1 which schemas names are looked up in, which temporary relations exist, and what
    /// transactions are unless they say otherwise.
    pub(crate) async fn refresh_scope(&mut self) -> Result<(), Failure> {
        // Operators are named in full: another role's would run with the rights of whoever logs in.
        let sql = "SELECT s FROM pg_catalog.unnest(pg_catalog.current_schemas(true)) WITH ORDINALITY AS u(s, n) \
                   WHERE s OPERATOR(pg_catalog.!~) '^pg_temp_'::pg_catalog.text ORDER BY n; \
                   SELECT relname FROM pg_catalog.pg_class \
                       WHERE relnamespace OPERATOR(pg_catalog.=) pg_catalog.pg_my_temp_schema() \
                       AND pg_catalog.pg_table_is_visible(oid); \
                   SELECT pg_catalog.current_setting('default_transaction_isolation'), \
                          pg_catalog.current_setting('default_transaction_read_only'), \
                          pg_catalog.date_part('epoch', pg_catalog.current_setting('idle_in_transaction_session_timeout')::pg_catalog.interval), \
                          pg_catalog.date_part('epoch', pg_catalog.current_setting('idle_session_timeout')::pg_catalog.interval); \
                   SELECT * FROM tutti.temporary_code()";
        // A transaction that has not come to any node need not be begun for this: SET TRANSACTION and LOCK
        // may still be its first statement.
        let link = match self.transaction.nodes.is_empty() {
            true => self.link(NodeId::HOME).await?,
            false => {
                self.takes_snapshot = true;
                self.enlist(NodeId::HOME, Access::Read).await?
            }
        };
        let rows = link.query(sql).await?;
        if let Some(defaults) = rows.get(2) {
            self.settings.characteristics = Characteristics {
                isolation: defaults.text(0, 0).map(str::to_owned),
                read_only: defaults.text(0, 1).map(|value| value == "on"),
                deferrable: None,
            };
            let timeout = |column| {
                let s = defaults.text(0, column)?.parse().ok().filter(|s| 0.0 < *s)?;
                Duration::try_from_secs_f64(s).ok()
            };
            self.settings.idle = IdleTimeouts { in_transaction: timeout(2), outside: timeout(3) };
        }
        let names = |index: usize| -> Vec<String> {
            rows.get(index).map_or_else(Vec::new, |result| {
                (0..result.rows.len())
                    .filter_map(|row| result.text(row, 0).map(str::to_owned))
                    .collect()
            })
        };
        let scope =
            NameScope { search_path: names(0), temporary: names(1), temporary_code: names(3) };
        self.scope_is_stale = false;
        self.settings_are_stale = false;
        self.scope_is_due = false;
        if scope != self.scope {
            // Whatever undoes part of the transaction, or ends it, may undo this.
            self.transaction.scope_changed |= self.transaction.is_open();
            self.scope = scope;
            self.scope_changes += 1;
        }
        Ok(())
    }

    /// What the last statement has done changes how names are looked up, and how long the session may be
    /// idle. Outside of transactions it has been done, and a look that fails is not its error: the next
    /// statement looks again.
    pub(crate) async fn renew_scope(&mut self) -> Result<(), Failure> {
        if self.transaction.is_open() {
            return self.refresh_scope().await;
        }
        self.refresh_scope_if_possible().await;
        Ok(())
    }

    /// The same, but not before something uses names where the transaction has no snapshot yet: one may still
    /// say what kind of transaction it is.
    pub(super) async fn renew_scope_in_time(&mut self) -> Result<(), Failure> {
        if !self.transaction.is_open() || self.transaction.queried {
            return self.renew_scope().await;
        }
        self.scope_is_stale = true;
        self.settings_are_stale = true;
        self.scope_is_due = true;
        Ok(())
    }

    /// Asks at once how names are seen now, if node 1 answers; else before the next statement.
    pub(super) async fn refresh_scope_if_possible(&mut self) {
        self.scope_is_stale = true;
        self.settings_are_stale = true;
        if !self.registry.cluster.nodes.is_open(NodeId::HOME) {
            return;
        }
        if let Err(failure) = self.refresh_scope().await {
            tracing::info!(?failure, "node 1 cannot say yet how a session sees names");
        }
    }

    /// Whether how names are looked up must be asked before the next statement.
    pub(super) fn must_look_at_scope(&self) -> bool {
        self.settings_are_stale || (self.scope_is_stale && !self.catalog.is_solo())
    }

    /// Takes the newest catalog, unless the transaction has one of its own.
    pub(crate) fn refresh_catalog(&mut self) {
        if !self.transaction.catalog_changed {
            let was_solo = self.catalog.is_solo();
            self.registry.cluster.publisher.refresh(&mut self.catalog);
            let path_changes = self.registry.path_changes.load(Ordering::SeqCst);
            // A schema of the path may have come, or may be used by now.
            self.scope_is_stale |=
                self.seen_path_changes != path_changes || was_solo != self.catalog.is_solo();
            self.seen_path_changes = path_changes;
        }
    }

    /// A statement failed inside a transaction.
    pub(crate) fn fail_transaction(&mut self) {
        self.end_if_misread();
        if self.transaction.mode == Mode::Explicit {
            self.transaction.failed = true;
        }
        let broken: Vec<_> =
            self.links.iter().filter(|(_, link)| link.is_broken()).map(|(node, _)| *node).collect();
        for node in broken {
            self.links.remove(&node);
            self.end_if_bound(node);
            self.transaction.doomed |= self.transaction.nodes.contains_key(&node);
        }
    }

    fn next_statement_id(&mut self) -> StatementId {
        self.next_statement += 1;
        self.next_statement
    }
}

/// How waiting for a client's message ended.
enum Waited {
    /// As the wait for it has it.
    Message(Result<bool, ClientError>),
    /// Somebody wants the session to see that the gateway's state has changed.
    LookUp,
    TooLong,
}

/// Waits for a message, and for what else may end the wait.
async fn wait(
    message: impl Future<Output = Result<bool, ClientError>>,
    activity: &Activity,
    timeout: Option<Duration>,
) -> Waited {
    let patience = async {
        match timeout {
            Some(timeout) => tokio::time::sleep(timeout).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        is_there = message => Waited::Message(is_there),
        () = activity.asked_to_look_up() => Waited::LookUp,
        () = patience => Waited::TooLong,
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.registry.backends.unregister(self.process_id);
    }
}
