//! A cluster whose nodes let no one in without TLS and a password, and its certificates.
//!
//! Owns: the authority, what nodes are set to, and the gateway's configuration.
//! Never: stays behind: keys and data go with the value.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, lchown};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rcgen::{
    BasicConstraints, Certificate, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose,
};
use tempfile::TempDir;
use tutti_configuration::{ClientTls, NodeTls, SslMode, TlsVersion};
use tutti_embed::Cluster;
use tutti_gateway::Config;
use tutti_tests::client::Client;
use tutti_tests::gateway::{self, TestCluster};
use tutti_tests::servers;

use super::clients::{Knock, psql};

/// The password of role `postgres` on the nodes.
pub const OWN_PASSWORD: &str = "the-gateways-own";
/// As long as a server may take to reload its configuration.
const RELOAD_LIMIT: Duration = Duration::from_secs(20);

/// Certificates of one authority, as files.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    files: TempDir,
}

impl Authority {
    pub fn new() -> Result<Self> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(Vec::new())?;
        // Each has another name: by the name a client looks for the authority of a certificate.
        let name = format!("test authority {}", rand::random::<u64>());
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let certificate = params.self_signed(&key)?;
        let files = tempfile::tempdir()?;
        fs::write(files.path().join("ca.crt"), certificate.pem())?;
        Ok(Self { issuer: Issuer::new(params, key), files })
    }

    pub fn path(&self, file: &str) -> PathBuf {
        self.files.path().join(file)
    }

    /// `name.crt` and `name.key`: for these hosts, or for a client of that name if there are none.
    pub fn issue(&self, name: &str, hosts: &[&str]) -> Result<()> {
        let key = KeyPair::generate()?;
        let hosts: Vec<_> = hosts.iter().map(|host| (*host).to_owned()).collect();
        let mut params = CertificateParams::new(hosts)?;
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let certificate: Certificate = params.signed_by(&key, &self.issuer)?;
        fs::write(self.path(&format!("{name}.crt")), certificate.pem())?;
        let key_path = self.path(&format!("{name}.key"));
        fs::write(&key_path, key.serialize_pem())?;
        // libpq insists.
        Ok(fs::set_permissions(key_path, fs::Permissions::from_mode(0o600))?)
    }
}

/// Nodes, gateway and certificates.
pub struct Place {
    pub cluster: TestCluster,
    pub authority: Authority,
}

impl Place {
    /// Two nodes; the gateway as [`configured`], changed by `change`.
    pub fn start(change: impl FnOnce(&mut Config, &Authority)) -> Result<Self> {
        let (servers, authority) = closed_servers(2)?;
        let mut config = configured(&servers, &authority);
        change(&mut config, &authority);
        Ok(Self { cluster: TestCluster::start_configured(servers, config)?, authority })
    }

    /// A client that connects to the gateway, with TLS of which the certificate is verified.
    pub fn knock(&self, user: &str, password: &str) -> Knock {
        Knock::at(self.cluster.endpoint().port)
            .with("user", user)
            .with("sslmode", "verify-full")
            .with("sslrootcert", &self.authority.path("ca.crt").display().to_string())
            .password(password)
    }

    /// The same at a node.
    pub fn knock_at_node(&self, index: usize, user: &str, password: &str) -> Knock {
        self.knock(user, password).at_port(self.cluster.nodes()[index].port)
    }

    /// Runs this as superuser through the gateway.
    pub fn run(&self, sql: &str) -> Result<String> {
        psql(&self.knock("postgres", OWN_PASSWORD), sql)
    }

    /// Runs this as superuser on one node, past the gateway.
    pub fn run_at_node(&self, index: usize, sql: &str) -> Result<String> {
        psql(&self.knock_at_node(index, "postgres", OWN_PASSWORD), sql)
    }
}

/// Servers that ask all clients for TLS and SCRAM. Each has salted the password of `postgres`
/// itself.
pub fn closed_servers(nodes: u16) -> Result<(Cluster, Authority)> {
    let servers = servers::start(nodes)?;
    let authority = Authority::new()?;
    authority.issue("node", &["127.0.0.1"])?;
    authority.issue("gateway", &["127.0.0.1", "localhost"])?;
    for index in 0..servers.servers().len() {
        close(&servers, index, &authority)
            .with_context(|| format!("close the server at index {index}"))?;
    }
    Ok((servers, authority))
}

/// With TLS on both sides, and no rules: all clients must know their password.
pub fn configured(servers: &Cluster, authority: &Authority) -> Config {
    let mut config = gateway::config(servers, "127.0.0.1:0".to_owned());
    config.rules.clear();
    config.tls = Some(ClientTls {
        certificate: authority.path("gateway.crt"),
        key: authority.path("gateway.key"),
        client_ca: Some(authority.path("ca.crt")),
        min_version: TlsVersion::default(),
    });
    config.node_tls = NodeTls {
        sslmode: Some(SslMode::VerifyFull),
        sslrootcert: Some(authority.path("ca.crt")),
        ..NodeTls::default()
    };
    for node in &mut config.nodes {
        node.password = Some(OWN_PASSWORD.to_owned().into());
    }
    config.complete();
    config
}

fn close(servers: &Cluster, index: usize, authority: &Authority) -> Result<()> {
    let data = servers.server(index).dir().join("data");
    for (from, to) in [("node.crt", "server.crt"), ("node.key", "server.key")] {
        give(&authority.path(from), &data.join(to), &data)?;
    }
    let endpoint = servers::endpoint(servers, index);
    let mut owner = Client::connect(&endpoint)?;
    for sql in [
        "SET password_encryption = 'scram-sha-256'",
        &format!("ALTER ROLE postgres PASSWORD '{OWN_PASSWORD}'"),
        "ALTER SYSTEM SET ssl = on",
    ] {
        owner.query(sql)?;
    }
    let rules = data.join("pg_hba.conf");
    fs::write(&rules, "hostssl all all 127.0.0.1/32 scram-sha-256\n")?;
    owner.query("SELECT pg_reload_conf()")?;
    let deadline = Instant::now() + RELOAD_LIMIT;
    // Refused because it comes without TLS: the new configuration is in force.
    while Client::connect(&endpoint).is_ok() {
        if deadline < Instant::now() {
            bail!("the server does not read {} anew", rules.display());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// A copy that belongs to the owner of `like`, and that no one else may read.
fn give(from: &Path, to: &Path, like: &Path) -> Result<()> {
    fs::copy(from, to)?;
    fs::set_permissions(to, fs::Permissions::from_mode(0o600))?;
    let owner = fs::metadata(like)?;
    Ok(lchown(to, Some(owner.uid()), Some(owner.gid()))?)
}
