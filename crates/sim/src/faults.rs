//! What a seed is made of: the size of the world, its speeds, and which faults come when.
//!
//! Owns: all choices that are made before the first event. Each seed draws which kinds of fault and
//! of work it has, so that some worlds are full of one kind and free of another ("swarm testing",
//! Groce, Zhang, Eide, Chen, Regehr, ISSTA 2012).
//! Never: changes the world; `run.rs` lets the faults happen.
//! Start reading at [`Plan::draw`].

use rand::Rng;
use rand_chacha::ChaCha8Rng;
use tutti_txn::NodeId;
use tutti_txn::coordinator::Form;

use crate::clock::Time;
use crate::node::statement::Key;
use crate::tasks::GatewayId;

/// When clients stop asking for more and faults stop.
const CALM_AT: Time = 60_000;
/// How long everything may take to settle after that.
const SETTLING: Time = 600_000;

/// What was sent has arrived after this time, in worlds with tables that move.
pub const ARRIVAL: Time = 800;

/// A fault, or the end of one.
#[derive(Clone, Copy, Debug)]
pub enum Fault {
    /// A gateway dies, wherever it is.
    GatewayDies,
    /// A gateway starts, whether or not another serves.
    GatewayStarts,
    /// One ends by itself, and may be started again.
    GatewayEnds {
        /// Which.
        gateway: GatewayId,
    },
    /// One halts, the one that has the lock if there is one.
    GatewayFreezes {
        /// For this long.
        duration: Time,
    },
    /// It goes on.
    GatewayThaws {
        /// Which.
        gateway: GatewayId,
    },
    /// The connection of the lock breaks.
    LockBreaks {
        /// Its gateway notices this much later than usual.
        unnoticed: Time,
    },
    /// A gateway, the one that has the lock if there is one, does not reach a node.
    Parts {
        /// The node.
        node: NodeId,
        /// For this long.
        duration: Time,
    },
    /// It does again.
    Rejoins {
        /// The gateway.
        gateway: GatewayId,
        /// The node.
        node: NodeId,
    },
    /// A server stops immediately. If it fails over, its standby goes on in its place.
    ServerStops {
        /// Which.
        node: NodeId,
        /// Whether a standby takes over, which may lack what was only flushed here.
        fails_over: bool,
    },
    /// It, or the standby in its place, accepts connections.
    ServerStarts {
        /// Which.
        node: NodeId,
        /// Whether it is the standby.
        fails_over: bool,
    },
    /// A connection breaks; which one is drawn then.
    ConnectionBreaks,
    /// The connection of a backend that waits for a lock breaks, as soon as there is one.
    WaiterBreaks,
}

/// How likely each kind of work is, as weights.
#[derive(Clone, Copy, Debug)]
pub struct Mix {
    /// Transactions that write on several nodes.
    pub transfers: u32,
    /// Transactions that write on one.
    pub locals: u32,
    /// One statement that reads several nodes.
    pub wide_reads: u32,
    /// One statement that reads one node.
    pub narrow_reads: u32,
    /// REPEATABLE READ transactions over several nodes.
    pub snapshots: u32,
    /// Statements that read tables, wherever these are.
    pub table_reads: u32,
    /// Statements of two steps, of which the second writes a table.
    pub in_steps: u32,
    /// Moves of a table to another node.
    pub moves: u32,
}

/// All choices of a seed.
#[derive(Clone, Debug)]
pub struct Plan {
    /// How many nodes.
    pub node_count: u16,
    /// How many clients.
    pub clients: usize,
    /// Registers per node; few mean much waiting for locks.
    pub keys: u8,
    /// How many tables that can be moved.
    pub tables: u8,
    /// The form of the commit.
    pub form: Form,
    /// What clients do.
    pub mix: Mix,
    /// Shortest and longest flight of a message, one way.
    pub latency: (Time, Time),
    /// No message takes longer than this.
    pub flight_max: Time,
    /// How many messages in a hundred take much longer.
    pub delays_percent: u32,
    /// How many reads in a hundred take much longer to come to their snapshot.
    pub slow_reads_percent: u32,
    /// How many flushes in a hundred take much longer.
    pub slow_flushes_percent: u32,
    /// Shortest and longest flush.
    pub flush: (Time, Time),
    /// How long a statement waits for a lock.
    pub lock_timeout: Time,
    /// How long the votes and the room may take.
    pub vote_deadline: Time,
    /// How many events in a hundred reach a machine twice.
    pub repeats_percent: u32,
    /// Longest pause of a client between two requests.
    pub pause: Time,
    /// Longest pause of a client between two statements of a transaction.
    pub think: Time,
    /// When work and faults stop.
    pub calm_at: Time,
    /// When everything must be settled.
    pub quiet_at: Time,
    /// The faults.
    pub faults: Vec<(Time, Fault)>,
}

impl Plan {
    /// Draws one.
    pub fn draw(rng: &mut ChaCha8Rng) -> Self {
        let node_count = rng.random_range(2..=4);
        let mut weight =
            |most: u32| if rng.random_bool(0.25) { 0 } else { rng.random_range(1..=most) };
        let mix = Mix {
            transfers: weight(8).max(2),
            locals: weight(6),
            wide_reads: weight(6),
            narrow_reads: weight(6),
            snapshots: weight(4),
            table_reads: 0,
            in_steps: 0,
            moves: 0,
        };
        let shortest = rng.random_range(10..=100);
        let flush_shortest = rng.random_range(10..=300);
        let mut plan = Self {
            node_count,
            clients: rng.random_range(2..=6),
            keys: rng.random_range(1..=4),
            tables: 0,
            form: if rng.random_bool(0.5) { Form::Anchored } else { Form::Apart },
            mix,
            latency: (shortest, shortest + rng.random_range(0..=400)),
            flight_max: Time::MAX,
            delays_percent: match rng.random_range(0..3) {
                0 => 0,
                1 => rng.random_range(1..=10),
                _ => rng.random_range(10..=30),
            },
            slow_reads_percent: if rng.random_bool(0.5) { 0 } else { rng.random_range(10..=50) },
            slow_flushes_percent: if rng.random_bool(0.5) { 0 } else { rng.random_range(5..=30) },
            flush: (flush_shortest, flush_shortest + rng.random_range(0..=1500)),
            lock_timeout: rng.random_range(3_000..=15_000),
            vote_deadline: rng.random_range(4_000..=30_000),
            repeats_percent: if rng.random_bool(0.5) { 0 } else { rng.random_range(1..=20) },
            pause: if rng.random_bool(0.3) { 100 } else { rng.random_range(100..=3_000) },
            think: if rng.random_bool(0.7) { 0 } else { rng.random_range(10..=3_000) },
            calm_at: CALM_AT,
            quiet_at: CALM_AT + SETTLING,
            faults: Vec::new(),
        };
        plan.draw_faults(rng);
        if rng.random_bool(0.2) {
            plan.make_crossing();
        }
        if rng.random_bool(0.4) {
            plan.add_tables(rng);
        }
        plan
    }

    /// Tables that are moved while they are used. What was sent arrives in time ([`ARRIVAL`]), for that is
    /// what the commit of a placement change counts on.
    fn add_tables(&mut self, rng: &mut ChaCha8Rng) {
        self.tables = rng.random_range(1..=3);
        self.flight_max = ARRIVAL - 50;
        self.mix.table_reads = rng.random_range(1..=8);
        self.mix.in_steps = rng.random_range(0..=6);
        self.mix.moves = rng.random_range(1..=6);
        self.clients = self.clients.max(4);
        if rng.random_bool(0.5) {
            self.mix.snapshots = self.mix.snapshots.min(1);
            self.pause = 300;
        }
        if rng.random_bool(0.3) {
            // Statements that are at work for long, waiting for a row, and then take another step.
            self.keys = 1;
            self.think = 3_000;
            self.mix.in_steps = 10;
            self.mix.transfers = 8;
        }
        if rng.random_bool(0.25) {
            // Moves of several tables, one of which is committed while the other is read.
            self.tables = 3;
            self.mix.moves = 15;
            self.clients = 6;
            self.slow_reads_percent = 50;
        }
        if rng.random_bool(0.4) {
            // Sessions that are lost while they wait for a table.
            self.mix.locals = 8;
            for _ in 0..8 {
                self.faults.push((rng.random_range(2_000..CALM_AT), Fault::WaiterBreaks));
            }
        }
    }

    /// A world for the rare crossings of a few quick transactions and slow statements: no faults, and
    /// much that goes on concurrently without waiting for the same rows.
    fn make_crossing(&mut self) {
        self.node_count = 2;
        self.clients = 6;
        self.keys = 6;
        self.faults.clear();
        self.mix = Mix { transfers: 4, locals: 8, wide_reads: 1, narrow_reads: 8, ..self.mix };
        self.mix.snapshots = 1;
        self.slow_reads_percent = 50;
        self.slow_flushes_percent = 25;
        self.flush = (50, 300);
        self.latency = (20, 120);
        self.delays_percent = 5;
        self.pause = 100;
        self.think = 2_000;
    }

    fn draw_faults(&mut self, rng: &mut ChaCha8Rng) {
        let mut count =
            |most: u32| if rng.random_bool(0.5) { 0 } else { rng.random_range(1..=most) };
        let (breaks, gateway_deaths, restarts, fail_overs) =
            (count(12), count(3), count(3), count(3));
        let (takeovers, parts) = (count(3), count(3));
        let when = |rng: &mut ChaCha8Rng| rng.random_range(2_000..CALM_AT);
        for _ in 0..breaks {
            self.faults.push((when(rng), Fault::ConnectionBreaks));
        }
        for _ in 0..gateway_deaths {
            let dies = when(rng);
            self.faults.push((dies, Fault::GatewayDies));
            self.faults.push((dies + rng.random_range(10..3_000), Fault::GatewayStarts));
        }
        for _ in 0..takeovers {
            let at = when(rng);
            self.draw_takeover(rng, at);
        }
        for _ in 0..parts {
            let node = NodeId(rng.random_range(1..=self.node_count));
            let duration = rng.random_range(100..12_000);
            let at = when(rng);
            self.faults.push((at, Fault::Parts { node, duration }));
            if rng.random_bool(0.3) {
                self.draw_takeover(rng, at);
            }
        }
        for (times, fails_over) in [(restarts, false), (fail_overs, true)] {
            for _ in 0..times {
                let node = NodeId(rng.random_range(1..=self.node_count));
                let stops = when(rng);
                let starts = stops + rng.random_range(10..6_000);
                self.faults.push((stops, Fault::ServerStops { node, fails_over }));
                self.faults.push((starts, Fault::ServerStarts { node, fails_over }));
            }
        }
    }

    /// A second gateway starts, and the first one loses its lock: it is alive, and often does not know for
    /// some time.
    fn draw_takeover(&mut self, rng: &mut ChaCha8Rng, at: Time) {
        self.faults.push((at, Fault::GatewayStarts));
        let breaks = at + rng.random_range(0..4_000);
        if rng.random_bool(0.8) {
            let unnoticed = if rng.random_bool(0.5) { 0 } else { rng.random_range(0..10_000) };
            self.faults.push((breaks, Fault::LockBreaks { unnoticed }));
        }
        if rng.random_bool(0.5) {
            let freezes = (breaks + rng.random_range(0..4_000)).saturating_sub(2_000);
            let duration = rng.random_range(500..15_000);
            self.faults.push((freezes, Fault::GatewayFreezes { duration }));
        }
        if rng.random_bool(0.4) {
            // The gateway that has the lock now may still be starting.
            let next = breaks + rng.random_range(200..6_000);
            let duration = rng.random_range(2_000..15_000);
            self.faults.push((next, Fault::GatewayFreezes { duration }));
            self.faults.push((next, Fault::LockBreaks { unnoticed: 0 }));
            self.faults.push((next, Fault::GatewayStarts));
        }
    }

    /// Where a table is before it is moved.
    pub fn first_place(&self, table: Key) -> NodeId {
        NodeId(u16::from(table) % self.node_count + 1)
    }

    /// The nodes, from 1.
    pub fn nodes(&self) -> impl Iterator<Item = NodeId> + use<> {
        (1..=self.node_count).map(NodeId)
    }
}
