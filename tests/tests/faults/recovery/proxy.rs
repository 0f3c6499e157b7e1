//! Between the gateway and a node: passes bytes on, and cuts connections where a test says so.
//!
//! Owns: the listening port, and one rule at a time. Never: changes a byte.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use tutti_gateway::NodeConfig;

use super::support::Result;

/// Whether the node gets the message at which its connection is cut.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum When {
    /// It does not.
    Before,
    /// It does, and the answer is cut off.
    After,
    /// It does, and the connection is cut without waiting for an answer.
    Meanwhile,
}

/// Where to cut, once.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// In the first message towards the node that contains this.
    pub text: &'static str,
    /// Before or after it.
    pub when: When,
    /// From then on the node cannot be reached at all.
    pub then_away: bool,
}

/// See the module's documentation.
pub struct Proxy {
    port: u16,
    state: Arc<State>,
}

/// What happens besides when a rule has found its message, before the connection is cut.
pub type Strike = Arc<dyn Fn() + Send + Sync>;

#[derive(Default)]
struct State {
    rule: Mutex<Option<Rule>>,
    strike: Mutex<Option<Strike>>,
    has_cut: AtomicBool,
    is_away: AtomicBool,
    open: Mutex<Vec<TcpStream>>,
}

impl Proxy {
    /// Stands between a gateway of this configuration and the node.
    pub fn before(node: &mut NodeConfig) -> Result<Self> {
        let proxy = Self::start(node.port)?;
        node.port = proxy.port();
        Ok(proxy)
    }

    /// Listens on a free port and passes on to `port`.
    pub fn start(port: u16) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let own_port = listener.local_addr()?.port();
        let state = Arc::new(State::default());
        let shared = state.clone();
        // Ends with the test's process.
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if shared.is_away.load(Ordering::SeqCst) {
                    continue;
                }
                let Ok(node) = TcpStream::connect(("127.0.0.1", port)) else { continue };
                shared.clone().pass_on(client, node);
            }
        });
        Ok(Self { port: own_port, state })
    }

    /// Where to connect in place of the node.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// From now on, until it has cut once or another rule is set.
    pub fn set(&self, rule: Option<Rule>) {
        self.state.has_cut.store(false, Ordering::SeqCst);
        *self.state.rule() = rule;
    }

    /// The same, and so much more happens then.
    pub fn set_with(&self, rule: Rule, strike: Strike) {
        *self.state.strike() = Some(strike);
        self.set(Some(rule));
    }

    /// Whether the rule has found its message.
    pub fn has_cut(&self) -> bool {
        self.state.has_cut.load(Ordering::SeqCst)
    }

    /// The node can be reached again.
    pub fn come_back(&self) {
        self.state.is_away.store(false, Ordering::SeqCst);
    }
}

impl State {
    fn rule(&self) -> std::sync::MutexGuard<'_, Option<Rule>> {
        self.rule.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn strike(&self) -> std::sync::MutexGuard<'_, Option<Strike>> {
        self.strike.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open(&self) -> std::sync::MutexGuard<'_, Vec<TcpStream>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pass_on(self: Arc<Self>, client: TcpStream, node: TcpStream) {
        let clones = (client.try_clone(), node.try_clone(), client.try_clone(), node.try_clone());
        let (Ok(client_in), Ok(node_in), Ok(client_out), Ok(node_out)) = clones else { return };
        self.open().extend([client, node]);
        let swallow = Arc::new(AtomicBool::new(false));
        let (state, swallows) = (self.clone(), swallow.clone());
        thread::spawn(move || {
            let _ = state.towards_node(&client_in, &node_out, &swallows);
            close(&client_in, &node_out);
        });
        thread::spawn(move || {
            let _ = self.towards_client(&node_in, &client_out, &swallow);
            close(&node_in, &client_out);
        });
    }

    fn towards_node(
        &self,
        mut from: &TcpStream,
        mut to: &TcpStream,
        swallow: &AtomicBool,
    ) -> std::io::Result<()> {
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let len = from.read(&mut buffer)?;
            if len == 0 {
                return to.shutdown(Shutdown::Both);
            }
            let chunk = &buffer[..len];
            let found = {
                let mut rule = self.rule();
                let matches = |rule: &mut Rule| {
                    chunk.windows(rule.text.len()).any(|window| window == rule.text.as_bytes())
                };
                rule.take_if(matches)
            };
            match found {
                Some(rule) if rule.when == When::Before => {
                    self.cut(from, to, rule);
                    return Ok(());
                }
                Some(rule) if rule.when == When::Meanwhile => {
                    to.write_all(chunk)?;
                    self.cut(from, to, rule);
                    return Ok(());
                }
                Some(rule) => {
                    swallow.store(true, Ordering::SeqCst);
                    to.write_all(chunk)?;
                    // The other direction cuts at the answer.
                    if rule.then_away {
                        self.is_away.store(true, Ordering::SeqCst);
                    }
                }
                None => to.write_all(chunk)?,
            }
        }
    }

    fn towards_client(
        &self,
        mut from: &TcpStream,
        mut to: &TcpStream,
        swallow: &AtomicBool,
    ) -> std::io::Result<()> {
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let len = from.read(&mut buffer)?;
            if swallow.load(Ordering::SeqCst) {
                let then_away = self.is_away.load(Ordering::SeqCst);
                self.cut(from, to, Rule { text: "", when: When::After, then_away });
                return Ok(());
            }
            if len == 0 {
                return to.shutdown(Shutdown::Both);
            }
            to.write_all(&buffer[..len])?;
        }
    }

    fn cut(&self, one: &TcpStream, other: &TcpStream, rule: Rule) {
        // First: a thread that notices the cut may ask for this immediately.
        self.has_cut.store(true, Ordering::SeqCst);
        let mut all = Vec::new();
        let strike = self.strike().take();
        if let Some(strike) = strike {
            strike();
        }
        if rule.then_away {
            self.is_away.store(true, Ordering::SeqCst);
            all = std::mem::take(&mut *self.open());
        }
        for stream in all.iter().chain([one, other]) {
            // Some are closed already.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

/// However one direction ended, by an error (the reset of a backend that was ended, say) or not, both sides
/// are told: whoever asks over a connection of which one half is gone would wait for ever.
fn close(one: &TcpStream, other: &TcpStream) {
    for stream in [one, other] {
        // One is closed already.
        let _ = stream.shutdown(Shutdown::Both);
    }
}
