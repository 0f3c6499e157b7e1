//! Who a client is: the rules, the proof, and what the role itself allows.
//!
//! Owns: the order of these checks, and the words of what is refused, which are PostgreSQL's.
//! Never: tells a client more of a role than PostgreSQL would before it has proved who it is.
//! Start reading at [`authenticate`]. Source: PostgreSQL, `src/backend/libpq/auth.c`.

use std::sync::Arc;

use bytes::BufMut;
use rustls::Connection;
use tokio::time::timeout_at;
use tutti_configuration::{Arrival, Method, decide, need_groups};
use tutti_link::connection::{Credentials, refused_default};
use tutti_link::net::scram::{SCRAM_SHA_256, SCRAM_SHA_256_PLUS, ScramKeys, Verifier};
use tutti_link::net::scram_server::{Refused, challenge};
use tutti_link::net::{certificate, nonce};
use tutti_wire::error_fields::ErrorFields;
use tutti_wire::frame::{Fields, Frame, put_frame, put_string};
use tutti_wire::sqlstate;

use crate::client::failure::Failure;
use crate::client::gate::{ClientSlot, Gate};
use crate::client::identity::ClientIdentity;
use crate::client::{Client, ClientError};
use crate::registry::Registry;
use crate::registry::known_roles::Role;
use crate::registry::role;

/// Longest message that a client may send before it is authenticated, in bytes; PostgreSQL's limit.
const TOKEN_LEN_MAX: usize = 65_535;

/// Lets a client in as `user`, or says why not.
///
/// AuthenticationOk is left to the caller: what may still fail comes before it.
pub(super) async fn authenticate(
    registry: &Registry,
    client: &mut Client,
    user: &str,
    database: &str,
) -> Result<ClientIdentity, Failure> {
    let gate = client.gate().clone();
    let place = gate.enter()?;
    let deadline = client.deadline();
    let login = Login { registry, gate: &gate, user, database };
    let outcome = timeout_at(deadline, login.run(client, place)).await.unwrap_or_else(|_| {
        Err(fatal(sqlstate::QUERY_CANCELED, "canceling authentication due to timeout"))
    });
    match outcome {
        Ok((identity, place)) => {
            client.take_slot(place);
            Ok(identity)
        }
        Err(failure) => {
            tracing::info!(user, peer = %client.peer(), %failure, "a login failed");
            Err(failure)
        }
    }
}

struct Login<'a> {
    registry: &'a Registry,
    gate: &'a Arc<Gate>,
    user: &'a str,
    database: &'a str,
}

impl Login<'_> {
    async fn run(
        &self,
        client: &mut Client,
        mut place: ClientSlot,
    ) -> Result<(ClientIdentity, ClientSlot), Failure> {
        let rules = &self.gate.rules;
        let role = role::ask(self.registry, self.gate, self.user, need_groups(rules)).await?;
        let address = client.peer().ip().to_canonical();
        let encrypted = client.session().is_some();
        let groups = role.as_ref().map_or(&[][..], |role| &role.groups);
        let (user, database) = (self.user, self.database);
        let arrival = Arrival { address, encrypted, user, database, groups };
        let credentials = match decide(rules, &arrival) {
            Some(Method::Trust) => Credentials::Nothing,
            Some(Method::ScramSha256) => {
                Credentials::Keys(Arc::new(self.scram(client, role.as_ref()).await?))
            }
            Some(Method::Cert) => {
                self.certificate(client.session())?;
                Credentials::Nothing
            }
            Some(Method::Reject) => {
                return Err(not_let_in(&arrival, "a rule of the gateway rejects connection"));
            }
            None => return Err(not_let_in(&arrival, "no rule of the gateway lets in connection")),
        };
        let Some(role) = role else {
            return Err(fatal("28000", format!("role \"{user}\" does not exist")));
        };
        if !role.may_login {
            return Err(fatal("28000", format!("role \"{user}\" is not permitted to log in")));
        }
        place.belongs_to(user, role.is_superuser, role.limit)?;
        // Whether the database exists is checked next; if it does not, this privilege is not its
        // own.
        if database == self.registry.cluster.config.database && !role.may_connect {
            return Err(ErrorFields::fatal(
                "42501",
                format!("permission denied for database \"{database}\""),
            )
            .with(b'D', "User does not have CONNECT privilege.")
            .into());
        }
        // A role that can put it right is let in: connections are set correctly whatever the
        // defaults are.
        if !role.is_superuser
            && let Some(misread) = refused_default(&role.settings)
        {
            return Err(misread.into());
        }
        let Role { oid, is_superuser, settings, .. } = role;
        let user = self.user.to_owned();
        Ok((ClientIdentity { user, credentials, role: oid, is_superuser, settings }, place))
    }

    async fn scram(&self, client: &mut Client, role: Option<&Role>) -> Result<ScramKeys, Failure> {
        let stored = role.filter(|role| role.is_valid).and_then(|role| role.verifier.as_deref());
        let verifier = stored.and_then(|stored| Verifier::parse(stored));
        if let (Some(stored), None) = (stored, &verifier)
            && stored.starts_with("md5")
        {
            return Err(self.md5());
        }
        let is_mock = verifier.is_none();
        let verifier =
            verifier.unwrap_or_else(|| Verifier::mock(self.user, &self.gate.mock_secret));
        let end_point = client.end_point().map(<[u8]>::to_vec);
        put_frame(client.out(), b'R', |body| {
            body.put_i32(10);
            if end_point.is_some() {
                put_string(body, SCRAM_SHA_256_PLUS);
            }
            put_string(body, SCRAM_SHA_256);
            body.put_u8(0);
        });
        let response = expect_response(client).await?;
        let mut fields = Fields::of(&response);
        let malformed = || fatal("08P01", "malformed SASL response");
        let mechanism = fields.string().map_err(|_| malformed())?;
        let first = fields.value().ok().flatten().ok_or_else(malformed)?;
        let challenged = challenge(verifier, &mechanism, end_point.as_deref(), &first, &nonce())
            .map_err(|refused| self.refused(refused))?;
        put_frame(client.out(), b'R', |body| {
            body.put_i32(11);
            body.extend_from_slice(challenged.message().as_bytes());
        });
        let response = expect_response(client).await?;
        match challenged.check(response.body()) {
            Ok((message, keys)) if !is_mock => {
                put_frame(client.out(), b'R', |body| {
                    body.put_i32(12);
                    body.extend_from_slice(message.as_bytes());
                });
                Ok(keys)
            }
            Ok(_) => Err(self.refused(Refused::WrongProof)),
            Err(refused) => Err(self.refused(refused)),
        }
    }

    fn certificate(&self, session: Option<&Connection>) -> Result<(), Failure> {
        let shown = session.and_then(|session| session.peer_certificates()?.first());
        let Some(shown) = shown else {
            return Err(fatal("28000", "connection requires a valid client certificate"));
        };
        match certificate::common_name(shown) {
            Some(name) if name == self.user => Ok(()),
            _ => {
                let message =
                    format!("certificate authentication failed for user \"{}\"", self.user);
                Err(fatal("28000", message))
            }
        }
    }

    fn refused(&self, refused: Refused) -> Failure {
        match refused {
            Refused::Protocol(fields) => (*fields).into(),
            Refused::WrongProof => {
                fatal("28P01", format!("password authentication failed for user \"{}\"", self.user))
            }
        }
    }

    fn md5(&self) -> Failure {
        let message = format!("password authentication failed for user \"{}\"", self.user);
        ErrorFields::fatal("28P01", message)
            .with(b'D', "The role's password is stored as MD5, by which nobody can log in here.")
            .with(
                b'H',
                "Set it anew through the gateway, which stores it for SCRAM: ALTER ROLE … PASSWORD.",
            )
            .into()
    }
}

/// Sends what is buffered and reads the client's answer.
async fn expect_response(client: &mut Client) -> Result<Frame, Failure> {
    match client.next_short_frame(TOKEN_LEN_MAX).await? {
        Some(frame) if frame.tag() == b'p' => Ok(frame),
        Some(frame) => {
            let message = format!("expected SASL response, got message type {}", frame.tag());
            Err(fatal("08P01", message))
        }
        // libpq disconnects like this to ask its user for the password.
        None => Err(ClientError::Lost(std::io::ErrorKind::UnexpectedEof.into()).into()),
    }
}

fn not_let_in(arrival: &Arrival<'_>, why: &str) -> Failure {
    let Arrival { address, user, database, encrypted, .. } = arrival;
    let encryption = if *encrypted { "SSL encryption" } else { "no encryption" };
    let message = format!(
        "{why} for host \"{address}\", user \"{user}\", database \"{database}\", {encryption}"
    );
    fatal("28000", message)
}

fn fatal(sqlstate: &str, message: impl Into<String>) -> Failure {
    ErrorFields::fatal(sqlstate, message).into()
}
