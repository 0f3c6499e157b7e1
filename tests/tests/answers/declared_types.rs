//! Keys as parameters of every type that a client may declare: placed and found as they are stored.
//!
//! Owns: that what an assignment changes (blanks, digits, fractions, long names) is placed as one PostgreSQL
//! stores it, whatever type the value has until then. (The cluster's audit at its end checks the places.)

use anyhow::{Result, ensure};
use tutti_tests::client::{Client, Flight, Request, text_arguments};
use tutti_tests::gateway::TestCluster;
use tutti_tests::servers;

const KEYS: [&str; 13] = [
    "varchar(3)",
    "char(3)",
    "name",
    "text",
    "int2",
    "int8",
    "float4",
    "float8",
    "numeric(6,1)",
    "timestamp(0)",
    "timestamptz(0)",
    "time(0)",
    "date",
];

/// text, varchar, char, name, int8, int2, int4, float4, float8, numeric, timestamp, timestamptz, time, date;
/// 0: the server finds out.
const DECLARED: [u32; 15] =
    [0, 25, 1043, 1042, 19, 20, 21, 23, 700, 701, 1700, 1114, 1184, 1083, 1082];

const VALUES: [&str; 15] = [
    "abc",
    "abc   ",
    "a ",
    "",
    "1",
    "1.5",
    "0.1",
    "0.16",
    "16777217",
    "70000",
    "NaN",
    "2020-01-01 00:00:00.6",
    "2020-01-01",
    "10:00:00.7",
    "a_name_that_is_longer_than_the_sixty_three_bytes_which_a_name_may_have",
];

#[test]
fn keys_of_declared_types_are_placed_as_they_are_stored() -> Result<()> {
    let plain = servers::start(1)?;
    let cluster = TestCluster::start(3)?;
    let mut expected = Client::connect(&servers::endpoint(&plain, 0))?;
    let mut subject = Client::connect(&cluster.endpoint())?;
    let mut compared = 0;
    for (index, key) in KEYS.iter().enumerate() {
        let create = format!("CREATE TABLE t{index} (k {key} PRIMARY KEY, n int)");
        expected.query(&create)?;
        subject.query(&format!("{create} DISTRIBUTE BY HASH (k)"))?;
        let count = |n: &str| {
            format!(
                "INSERT INTO t{index} VALUES ($1, 1) ON CONFLICT (k) DO UPDATE SET n = t{index}.n + {n}"
            )
        };
        // From the second of each text on it goes the short way.
        let (insert, find) = (
            count("1"),
            format!("SELECT k, n FROM t{index} WHERE k = $1 ORDER BY k::text COLLATE \"C\""),
        );
        for declared in DECLARED {
            for value in VALUES {
                let arguments = [text_arguments(&[Some(value.to_owned())])];
                for sql in [&insert, &find] {
                    let types = &[declared][..];
                    let request = Request { sql, types, arguments: &arguments, row_limit: 0 };
                    let told = |client: &mut Client| -> Result<String> {
                        let answer = client.extended(&request, Flight::OneFlight, &[])?;
                        Ok(match answer.error() {
                            Some(error) => error.sqlstate().to_owned(),
                            None => format!("{:?}", answer.texts()),
                        })
                    };
                    let (expected, found) = (told(&mut expected)?, told(&mut subject)?);
                    ensure!(
                        expected == found,
                        "{key}, {value:?} declared as {declared}: {sql}: {found}, not {expected}"
                    );
                    compared += 1;
                }
            }
        }
        let all = format!("SELECT k, n FROM t{index} ORDER BY k::text COLLATE \"C\", n");
        ensure!(expected.query(&all)? == subject.query(&all)?, "rows of {key}");
    }
    ensure!(compared == 2 * KEYS.len() * DECLARED.len() * VALUES.len(), "all of them");
    Ok(())
}
