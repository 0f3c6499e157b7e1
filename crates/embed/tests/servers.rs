//! Real servers: made, started, killed, found again. Needs PostgreSQL 15 or newer installed.
//!
//! A second process is this test binary itself: see [`the_other_process`].

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime};

use tutti_embed::{Cluster, ClusterOptions, EmbedError, ServerOptions};

/// Tells [`the_other_process`] which directory to open; empty for a temporary cluster.
const OTHER_DIR: &str = "TUTTI_EMBED_TEST_OTHER_DIR";

/// Two nodes in a directory that stays, made quickly.
fn options() -> ClusterOptions {
    ClusterOptions { nodes: Some(2), server: ServerOptions::for_tests() }
}

/// A directory that the servers' account can enter.
fn place() -> tempfile::TempDir {
    use std::os::unix::fs::PermissionsExt;
    tempfile::Builder::new().permissions(fs::Permissions::from_mode(0o755)).tempdir().unwrap()
}

/// Runs a statement with psql and gives what it prints, unaligned and without headers.
fn psql(url: &str, sql: &str) -> String {
    let output = Command::new("psql")
        .args(["-XAtq", "-v", "ON_ERROR_STOP=1", "-c", sql, url])
        .output()
        .expect("psql is installed");
    assert!(output.status.success(), "{sql}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// Whether anything listens on the port.
fn is_listening(port: u16) -> bool {
    TcpListener::bind(("127.0.0.1", port)).is_err()
}

#[test]
fn a_temporary_cluster_works_and_leaves_nothing_behind() {
    let cluster = Cluster::create_temp(3).unwrap();
    let dir = cluster.dir().to_owned();
    let ports: Vec<u16> = cluster.servers().iter().map(|server| server.port()).collect();
    assert_eq!(ports.len(), 3);
    for server in cluster.servers() {
        let settings = "SELECT current_setting('max_prepared_transactions'), \
                        current_setting('wal_level'), current_setting('server_encoding'), \
                        current_setting('listen_addresses')";
        assert_eq!(psql(&server.url(), settings), "200|logical|UTF8|127.0.0.1");
        let socket = server.socket_dir().unwrap();
        let by_socket = format!(
            "host={} port={} user=postgres dbname=postgres",
            socket.display(),
            server.port()
        );
        assert_eq!(psql(&by_socket, "SELECT 1"), "1");
    }
    drop(cluster);
    assert!(!dir.exists());
    assert!(ports.into_iter().all(|port| !is_listening(port)));
}

/// The segment of System V shared memory that the server in a directory has, by its number.
#[cfg(target_os = "linux")]
fn segment_of(server: &Path) -> u64 {
    let pid_file = fs::read_to_string(server.join("data/postmaster.pid")).unwrap();
    pid_file.lines().nth(6).unwrap().split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// How many processes have the segment; `None` if the system has no such segment.
#[cfg(target_os = "linux")]
fn attached(segment: u64) -> Option<u64> {
    let list = fs::read_to_string("/proc/sysvipc/shm").unwrap();
    let column = |line: &str, index| line.split_whitespace().nth(index)?.parse::<u64>().ok();
    let line = list.lines().find(|line| column(line, 1) == Some(segment))?;
    column(line, 6)
}

#[cfg(target_os = "linux")]
fn is_there(segment: u64) -> bool {
    attached(segment).is_some()
}

// The system has few of them; when all are taken no server starts, ours or another's.
#[test]
#[cfg(target_os = "linux")]
fn however_a_server_ends_its_shared_memory_goes() {
    let mut cluster = Cluster::create_temp(3).unwrap();
    let segments: Vec<u64> =
        cluster.servers().iter().map(|server| segment_of(server.dir())).collect();
    assert!(segments.iter().all(|segment| is_there(*segment)));

    cluster.server_mut(0).kill9().unwrap();
    cluster.server_mut(0).start().unwrap();
    let restarted = segment_of(cluster.server(0).dir());
    // Another process kills node 2's postmaster, as the system does when memory is short.
    let postmaster = cluster.server(1).pid().unwrap();
    let killed = Command::new("kill").args(["-9", &postmaster.to_string()]).status();
    assert!(killed.unwrap().success());
    // Its children notice.
    while attached(segments[1]) != Some(0) {
        std::thread::sleep(Duration::from_millis(10));
    }
    drop(cluster);
    assert!(!segments.into_iter().chain([restarted]).any(is_there));
}

#[test]
fn a_killed_server_comes_back_on_its_port_with_what_was_durable() {
    let mut cluster = Cluster::create_temp(1).unwrap();
    let url = cluster.server(0).url();
    psql(&url, "CREATE TABLE kept (n int); INSERT INTO kept VALUES (1)");
    psql(&url, "BEGIN; INSERT INTO kept VALUES (2); PREPARE TRANSACTION 'in doubt'");

    cluster.server_mut(0).kill9().unwrap();
    assert!(!cluster.server_mut(0).is_running());
    assert!(!is_listening(cluster.server(0).port()));

    cluster.server_mut(0).start().unwrap();
    assert_eq!(cluster.server(0).url(), url);
    assert_eq!(psql(&url, "SELECT n FROM kept"), "1");
    assert_eq!(psql(&url, "SELECT gid FROM pg_prepared_xacts"), "in doubt");

    cluster.server_mut(0).restart().unwrap();
    psql(&url, "COMMIT PREPARED 'in doubt'");
    assert_eq!(psql(&url, "SELECT count(*) FROM kept"), "2");
}

#[test]
fn a_directory_carries_on_with_its_data_and_ports() {
    let place = place();
    let dir = place.path().join("to/be/made");
    let mut cluster = Cluster::open(&dir, &options()).unwrap();
    cluster.start().unwrap();
    let name = cluster.name().to_owned();
    let url = cluster.server(1).url();
    psql(&url, "CREATE TABLE kept AS SELECT 7 AS n");
    cluster.stop().unwrap();
    drop(cluster);

    // As many nodes as there are, when nobody says.
    let mut cluster = Cluster::open(&dir, &ClusterOptions { nodes: None, ..options() }).unwrap();
    cluster.start().unwrap();
    let known = Cluster::peek(&dir).unwrap().unwrap();
    assert_eq!(known, (name.clone(), cluster.servers().iter().map(|s| s.port()).collect()));
    assert_eq!((cluster.name(), cluster.servers().len()), (name.as_str(), 2));
    assert_eq!(psql(&url, "SELECT n FROM kept"), "7");
    drop(cluster);

    let error = Cluster::open(&dir, &ClusterOptions { nodes: Some(5), ..options() }).unwrap_err();
    assert!(matches!(error, EmbedError::NodeCount { has: 2, asked: 5, .. }), "{error}");
    fs::remove_dir_all(dir.join("node2")).unwrap();
    let error = Cluster::open(&dir, &options()).unwrap_err();
    assert!(matches!(error, EmbedError::NodeDataMissing { .. }), "{error}");
}

#[test]
fn a_second_opener_is_refused() {
    let place = place();
    let dir = place.path().join("cluster");
    let _first = Cluster::open(&dir, &options()).unwrap();
    let error = Cluster::open(&dir, &options()).unwrap_err();
    let own = std::process::id();
    assert!(matches!(error, EmbedError::InUse { pid: Some(pid), .. } if pid == own), "{error}");
}

#[test]
fn a_directory_with_other_things_in_it_is_refused() {
    let place = place();
    fs::write(place.path().join("thesis.txt"), "years of work").unwrap();
    let error = Cluster::open(place.path(), &options()).unwrap_err();
    assert!(matches!(error, EmbedError::NotOurs { .. }), "{error}");
}

#[test]
fn an_interrupted_making_is_completed() {
    let place = place();
    let dir = place.path().join("cluster");
    drop(Cluster::open(&dir, &options()).unwrap());
    // As a crash in the middle of node 2's initdb leaves it.
    let state = fs::read_to_string(dir.join("cluster.toml")).unwrap();
    fs::write(dir.join("cluster.toml"), state.replace("complete = true", "complete = false"))
        .unwrap();
    fs::rename(dir.join("node2/data"), dir.join("node2/data.unfinished")).unwrap();
    fs::remove_file(dir.join("node2/data.unfinished/PG_VERSION")).unwrap();

    let mut cluster = Cluster::open(&dir, &options()).unwrap();
    cluster.start().unwrap();
    assert_eq!(psql(&cluster.server(1).url(), "SELECT 1"), "1");
    assert!(!dir.join("node2/data.unfinished").exists());
}

#[test]
fn a_taken_port_is_replaced_and_remembered() {
    let place = place();
    let dir = place.path().join("cluster");
    let mut cluster = Cluster::open(&dir, &options()).unwrap();
    let wanted = cluster.server(0).port();
    let _somebody_else = TcpListener::bind(("127.0.0.1", wanted)).unwrap();
    cluster.start().unwrap();
    let given = cluster.server(0).port();
    assert_ne!(given, wanted);
    assert_eq!(psql(&cluster.server(0).url(), "SELECT 1"), "1");
    drop(cluster);
    assert_eq!(Cluster::open(&dir, &options()).unwrap().server(0).port(), given);
}

#[test]
fn servers_of_a_killed_process_are_stopped_by_the_next_start() {
    let place = place();
    let dir = place.path().join("cluster");
    let mut other = start_other_process(&dir);
    let (pid, url) = (other.0, other.1.clone());
    psql(&url, "CREATE TABLE kept AS SELECT 7 AS n");

    let error = Cluster::open(&dir, &options()).unwrap_err();
    let other_id = other.2.id();
    assert!(
        matches!(error, EmbedError::InUse { pid: Some(pid), .. } if pid == other_id),
        "{error}"
    );

    other.2.kill().unwrap();
    other.2.wait().unwrap();
    assert_eq!(psql(&url, "SELECT n FROM kept"), "7", "the server outlives the killed process");

    let mut cluster = Cluster::open(&dir, &options()).unwrap();
    cluster.start().unwrap();
    assert_eq!(cluster.server(0).url(), url);
    assert_ne!(cluster.server(0).pid(), Some(pid));
    assert_eq!(psql(&url, "SELECT n FROM kept"), "7");
}

#[test]
fn a_killed_tests_temporary_cluster_is_removed_by_the_next() {
    let (_, url, mut other) = start_other_process(Path::new(""));
    let data_dir = psql(&url, "SHOW data_directory");
    let dir = Path::new(&data_dir).ancestors().nth(2).unwrap();
    #[cfg(target_os = "linux")]
    let segment = segment_of(&dir.join("node1"));
    other.kill().unwrap();
    other.wait().unwrap();
    // Young ones are spared, because they may be in the making.
    drop(Cluster::create_temp(1).unwrap());
    assert_eq!(psql(&url, "SELECT 1"), "1");

    let long_ago = SystemTime::now() - Duration::from_secs(3_600);
    fs::File::open(dir).unwrap().set_modified(long_ago).unwrap();
    drop(Cluster::create_temp(1).unwrap());
    assert!(!dir.exists());
    #[cfg(target_os = "linux")]
    assert!(!is_there(segment));
    let port = url.rsplit([':', '/']).nth(1).unwrap().parse().unwrap();
    assert!(!is_listening(port));
}

/// Not a test of its own: what [`start_other_process`] runs, to be killed while servers run.
#[test]
fn the_other_process() {
    let Some(dir) = std::env::var_os(OTHER_DIR) else { return };
    let cluster = if dir.is_empty() {
        Cluster::create_temp(1).unwrap()
    } else {
        let mut cluster = Cluster::open(Path::new(&dir), &options()).unwrap();
        cluster.start().unwrap();
        cluster
    };
    println!("\nserver {} {}", cluster.server(0).pid().unwrap(), cluster.server(0).url());
    std::thread::sleep(std::time::Duration::from_secs(600));
}

/// Starts this binary with only [`the_other_process`]; the postmaster's number and URL of node 1.
fn start_other_process(dir: &Path) -> (u32, String, Child) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "the_other_process", "--nocapture"])
        .env(OTHER_DIR, dir)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        if let Some((pid, url)) = line.strip_prefix("server ").and_then(|rest| rest.split_once(' '))
        {
            return (pid.parse().unwrap(), url.to_owned(), child);
        }
    }
    panic!("the other process ended early: {:?}", child.wait());
}
