//! What every client meets before it has a session: limits, TLS, rules.
//!
//! Owns: how many clients there are, in all and by role, and how many are still logging in.
//! Never: waits: a client that is one too many is refused immediately. (Whoever looks up a role waits for its
//! permit.)

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Semaphore;
use tutti_configuration::{Config, Keepalive, Limits, Rule};
use tutti_link::net::between::Between;
use tutti_link::net::pem::TlsError;
use tutti_link::net::random;
use tutti_link::net::server_tls::ServerTls;
use tutti_wire::error_fields::ErrorFields;

/// Most role look-ups on node 1 at a time; further logins queue.
const LOOKUPS_MAX: usize = 16;

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Gate {
    limits: Limits,
    keepalive: Keepalive,
    /// As configured.
    pub(crate) rules: Vec<Rule>,
    /// TLS, if it is configured.
    pub(crate) tls: Option<ServerTls>,
    /// For clients that other gateways bring.
    pub(crate) between: Between,
    /// What mock verifiers are made from. Lasts as long as this gateway runs.
    pub(crate) mock_secret: [u8; 32],
    /// Permits to look up a role on node 1.
    pub(crate) lookups: Semaphore,
    knocking: Mutex<Knocking>,
    inside: Mutex<Inside>,
}

/// Who has not logged in yet.
#[derive(Debug, Default)]
struct Knocking {
    all: usize,
    /// By the network that one host commonly has to itself.
    by_address: HashMap<IpAddr, usize>,
}

/// What those are told for whom there is no [`HandshakeSlot`].
pub(crate) fn too_many_handshakes() -> ErrorFields {
    ErrorFields::fatal("53300", "too many connections that have not logged in yet")
}

/// The slot of a connection that has not logged in. Freed on drop.
#[derive(Debug)]
pub(crate) struct HandshakeSlot {
    gate: Arc<Gate>,
    address: IpAddr,
}

impl Drop for HandshakeSlot {
    fn drop(&mut self) {
        let mut knocking = self.gate.knocking();
        knocking.all -= 1;
        if let Some(count) = knocking.by_address.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                knocking.by_address.remove(&self.address);
            }
        }
    }
}

/// A whole IPv6 network of the usual size (/64) counts as one address.
fn network_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6((address.to_bits() >> 64 << 64).into()),
        address => address,
    }
}

#[derive(Debug, Default)]
struct Inside {
    clients: usize,
    by_role: HashMap<String, usize>,
}

impl Gate {
    /// Reads the certificates.
    pub(crate) fn new(config: &Config) -> Result<Arc<Self>, TlsError> {
        let limits = config.limits.clone();
        Ok(Arc::new(Self {
            knocking: Mutex::default(),
            limits,
            keepalive: config.keepalive.clone(),
            rules: config.rules.clone(),
            tls: config.tls.as_ref().map(ServerTls::new).transpose()?,
            between: Between::draw(),
            mock_secret: random(),
            lookups: Semaphore::new(LOOKUPS_MAX),
            inside: Mutex::default(),
        }))
    }

    /// A slot for a connection that has not logged in; `None` if there are too many, or too many from
    /// that network.
    pub(crate) fn knock(self: &Arc<Self>, peer: IpAddr) -> Option<HandshakeSlot> {
        let address = network_of(peer);
        let mut knocking = self.knocking();
        let from_there = knocking.by_address.get(&address).copied().unwrap_or(0);
        let Limits { max_handshakes, max_handshakes_per_address, .. } = self.limits;
        if max_handshakes <= knocking.all || max_handshakes_per_address <= from_there {
            return None;
        }
        knocking.all += 1;
        knocking.by_address.insert(address, from_there + 1);
        Some(HandshakeSlot { gate: self.clone(), address })
    }

    fn knocking(&self) -> std::sync::MutexGuard<'_, Knocking> {
        self.knocking.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Most clients at a time.
    pub(crate) fn clients_max(&self) -> usize {
        self.limits.max_clients
    }

    /// How sockets are configured.
    pub(crate) fn keepalive(&self) -> &Keepalive {
        &self.keepalive
    }

    /// How long a login may take.
    pub(crate) fn patience(&self) -> Duration {
        Duration::from_secs(self.limits.authentication_timeout_s)
    }

    /// Takes a slot among the clients, before it is known which role this is.
    pub(crate) fn enter(self: &Arc<Self>) -> Result<ClientSlot, ErrorFields> {
        let mut inside = self.inside();
        if self.limits.max_clients <= inside.clients {
            return Err(ErrorFields::fatal("53300", "sorry, too many clients already"));
        }
        inside.clients += 1;
        Ok(ClientSlot { gate: self.clone(), role: None })
    }

    fn inside(&self) -> std::sync::MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A client's slot. Freed on drop.
#[derive(Debug)]
pub(crate) struct ClientSlot {
    gate: Arc<Gate>,
    role: Option<String>,
}

impl ClientSlot {
    /// The role is known now. `limit` is the role's own, if it has one.
    pub(crate) fn belongs_to(
        &mut self,
        role: &str,
        is_superuser: bool,
        limit: Option<usize>,
    ) -> Result<(), ErrorFields> {
        if is_superuser {
            return Ok(());
        }
        let limits = &self.gate.limits;
        let mut inside = self.gate.inside();
        if limits.max_clients.saturating_sub(limits.reserved_for_superusers) < inside.clients {
            let message = "remaining connection slots are reserved for roles with the SUPERUSER \
                           attribute";
            return Err(ErrorFields::fatal("53300", message));
        }
        let count = inside.by_role.get(role).copied().unwrap_or(0);
        if limit.is_some_and(|limit| limit <= count) {
            let message = format!("too many connections for role \"{role}\"");
            return Err(ErrorFields::fatal("53300", message));
        }
        inside.by_role.insert(role.to_owned(), count + 1);
        drop(inside);
        self.role = Some(role.to_owned());
        Ok(())
    }
}

impl Drop for ClientSlot {
    fn drop(&mut self) {
        let mut inside = self.gate.inside();
        inside.clients -= 1;
        let Some(role) = &self.role else { return };
        if let Some(count) = inside.by_role.get_mut(role) {
            *count -= 1;
            if *count == 0 {
                inside.by_role.remove(role);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gate(max_clients: usize) -> Arc<Gate> {
        let limits = Limits { max_clients, reserved_for_superusers: 1, ..Limits::default() };
        Gate::new(&Config { limits, ..Config::default() }).unwrap()
    }

    fn come(gate: &Arc<Gate>, role: &str, limit: Option<usize>) -> Result<ClientSlot, String> {
        let message = |fields: ErrorFields| fields.message().to_owned();
        let mut place = gate.enter().map_err(message)?;
        place.belongs_to(role, role == "root", limit).map_err(message)?;
        Ok(place)
    }

    #[test]
    fn the_last_place_is_for_a_superuser_and_then_nobody_comes_in() {
        let gate = gate(3);
        let ann = come(&gate, "ann", None).unwrap();
        let _bob = come(&gate, "bob", None).unwrap();
        assert!(come(&gate, "cid", None).unwrap_err().starts_with("remaining connection slots"));
        let root = come(&gate, "root", None).unwrap();
        assert_eq!(come(&gate, "root", None).unwrap_err(), "sorry, too many clients already");
        drop(root);
        drop(ann);
        come(&gate, "cid", None).unwrap();
    }

    #[test]
    fn one_address_leaves_room_for_others() {
        let limits = Limits { max_handshakes_per_address: 2, ..Limits::default() };
        let gate = Gate::new(&Config { limits, ..Config::default() }).unwrap();
        let from = |text: &str| gate.knock(text.parse().unwrap());
        let (one, _other) = (from("2001:db8::1").unwrap(), from("2001:db8::2").unwrap());
        assert!(from("2001:db8::3").is_none(), "the same network");
        let _elsewhere = from("2001:db8:0:1::1").unwrap();
        let (_a, _b) = (from("10.0.0.1").unwrap(), from("::ffff:10.0.0.1").unwrap());
        assert!(from("10.0.0.1").is_none());
        drop(one);
        from("2001:db8::3").unwrap();
    }

    #[test]
    fn a_role_has_a_limit_of_its_own() {
        let gate = gate(10);
        let first = come(&gate, "ann", Some(1)).unwrap();
        let refused = come(&gate, "ann", Some(1)).unwrap_err();
        assert_eq!(refused, "too many connections for role \"ann\"");
        come(&gate, "bob", Some(1)).unwrap();
        drop(first);
        come(&gate, "ann", Some(1)).unwrap();
    }
}
