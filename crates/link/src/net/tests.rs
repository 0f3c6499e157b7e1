//! SCRAM by the example of RFC 7677, and both sides of ours with each other.

use std::num::NonZeroU32;

use postgres_protocol::password::scram_sha_256;
use tutti_configuration::Secret;
use tutti_wire::error_fields::ErrorFields;

use super::nonce;
use super::scram::{SCRAM_SHA_256, SCRAM_SHA_256_PLUS, ScramKeys, Verifier};
use super::scram_client::{Binding, Opened, Proof, ServerRefused};
use super::scram_server::{Challenged, Refused, challenge};

/// The verifier of the password "pencil" in RFC 7677, section 3. Its StoredKey and ServerKey are
/// what PostgreSQL computes from the RFC's salt and count.
const RFC_VERIFIER: &str = "SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$\
     WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=";
const RFC_CLIENT_FIRST: &str = "n,,n=user,r=rOprNGfwEbeRWgbNEkqO";
const RFC_SERVER_NONCE: &str = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";
const RFC_SERVER_FIRST: &str =
    "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096";
const RFC_CLIENT_FINAL: &str = "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
     p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";
const RFC_SERVER_FINAL: &str = "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=";

fn rfc() -> Challenged {
    let verifier = Verifier::parse(RFC_VERIFIER).unwrap();
    let first = RFC_CLIENT_FIRST.as_bytes();
    challenge(verifier, SCRAM_SHA_256, None, first, RFC_SERVER_NONCE).unwrap()
}

#[test]
fn the_servers_side_says_what_rfc_7677_says() {
    let challenged = rfc();
    assert_eq!(challenged.message(), RFC_SERVER_FIRST);
    let (message, _) = challenged.check(RFC_CLIENT_FINAL.as_bytes()).unwrap();
    assert_eq!(message, RFC_SERVER_FINAL);
}

#[test]
fn a_proof_that_is_not_the_rfcs_is_refused() {
    let wrong = RFC_CLIENT_FINAL.replace("p=dH", "p=eH");
    assert!(matches!(rfc().check(wrong.as_bytes()), Err(Refused::WrongProof)));
    let short = RFC_CLIENT_FINAL.replace("ndVQ=", "ndA==");
    assert!(rfc().check(short.as_bytes()).is_err());
    let other_nonce = RFC_CLIENT_FINAL.replace("$k0", "$k1");
    assert_eq!(protocol(rfc().check(other_nonce.as_bytes())), "invalid SCRAM response");
    let other_binding = RFC_CLIENT_FINAL.replace("biws", "eSws");
    let refused = protocol(rfc().check(other_binding.as_bytes()));
    assert_eq!(refused, "SCRAM channel binding check failed");
}

fn protocol<T>(result: Result<T, Refused>) -> String {
    match result {
        Err(Refused::Protocol(fields)) => ErrorFields::message(&fields).to_owned(),
        Err(Refused::WrongProof) => "wrong proof".to_owned(),
        Ok(_) => "accepted".to_owned(),
    }
}

/// The keys of the RFC's user, as a login leaves them.
fn rfc_keys() -> ScramKeys {
    rfc().check(RFC_CLIENT_FINAL.as_bytes()).unwrap().1
}

/// A login with these keys where this verifier is stored.
fn log_in(keys: ScramKeys, verifier: Verifier, binding: Binding) -> Result<(), String> {
    let client_key = keys.client_key.clone();
    let again = log_in_by(Proof::Keys(keys), verifier, binding)?;
    assert!(again.client_key == client_key);
    Ok(())
}

/// A login by this proof where this verifier is stored. Returns the keys that it leaves.
fn log_in_by(proof: Proof, verifier: Verifier, binding: Binding) -> Result<ScramKeys, String> {
    let end_point = match &binding {
        Binding::EndPoint(hash) => Some(hash.clone()),
        Binding::None | Binding::NotOffered => None,
    };
    let mechanism = binding.mechanism();
    let opened = Opened::new(proof, binding, nonce());
    let first = opened.message();
    let challenged =
        challenge(verifier, mechanism, end_point.as_deref(), first.as_bytes(), &nonce());
    let challenged = challenged.map_err(|refused| protocol::<()>(Err(refused)))?;
    let (last, answered) =
        opened.answer(challenged.message().as_bytes()).map_err(|refused| format!("{refused:?}"))?;
    let (proof, again) =
        challenged.check(last.as_bytes()).map_err(|refused| protocol::<()>(Err(refused)))?;
    answered.check(proof.as_bytes()).map_err(|refused| format!("{refused:?}"))?;
    Ok(again)
}

#[test]
fn the_keys_of_a_password_prove_what_rfc_7677_says() {
    let salt = Verifier::parse(RFC_VERIFIER).unwrap().salt;
    let keys = ScramKeys::derive("pencil", &salt, NonZeroU32::new(4096).unwrap());
    let (without_proof, proof) = RFC_CLIENT_FINAL.split_once(",p=").unwrap();
    let first_bare = RFC_CLIENT_FIRST.strip_prefix("n,,").unwrap();
    let auth_message = format!("{first_bare},{RFC_SERVER_FIRST},{without_proof}");
    assert_eq!(super::scram::encode(&keys.proof(auth_message.as_bytes())[..]), proof);
    let signature = super::scram::decode(RFC_SERVER_FINAL.strip_prefix("v=").unwrap()).unwrap();
    assert!(keys.is_servers(auth_message.as_bytes(), &signature));
}

/// The verifiers are made by the library that drivers use: it agrees with us on how a password is
/// prepared before hashing.
#[test]
fn a_password_logs_in_where_its_verifier_is_and_no_other_does() {
    let by = |password: &str| Proof::Password(Secret::from(password.to_owned()));
    // SASLprep makes one letter of IX (U+2168), takes the soft hyphen out, and cannot prepare a tab.
    for password in ["pencil", "\u{2168}", "I\u{ad}X", "\u{e9}t\u{e9}", "a\tb", " "] {
        let verifier = || Verifier::parse(&scram_sha_256(password.as_bytes())).unwrap();
        for binding in [Binding::None, Binding::NotOffered, Binding::EndPoint(vec![7; 32])] {
            assert!(log_in_by(by(password), verifier(), binding).is_ok(), "{password:?}");
        }
        let refused = log_in_by(by("pencil2"), verifier(), Binding::None);
        assert_eq!(refused.unwrap_err(), "wrong proof");
    }
    let verifier = Verifier::parse(&scram_sha_256(b"IX")).unwrap();
    assert!(log_in_by(by("\u{2168}"), verifier, Binding::None).is_ok());
}

#[test]
fn the_keys_of_one_login_serve_for_the_next() {
    let verifier = || Verifier::parse(RFC_VERIFIER).unwrap();
    for binding in [Binding::None, Binding::NotOffered, Binding::EndPoint(vec![7; 32])] {
        assert_eq!(log_in(rfc_keys(), verifier(), binding), Ok(()));
    }
}

#[test]
fn the_keys_do_not_fit_the_same_password_salted_anew() {
    let verifier = Verifier::parse(&scram_sha_256(b"pencil")).unwrap();
    let refused = log_in(rfc_keys(), verifier, Binding::None);
    assert_eq!(refused, Err(format!("{:?}", ServerRefused::OtherVerifier)));
}

#[test]
fn a_server_that_does_not_know_the_verifier_is_found_out() {
    let mut verifier = Verifier::parse(RFC_VERIFIER).unwrap();
    verifier.server_key = Verifier::mock("user", b"secret").server_key;
    let refused = log_in(rfc_keys(), verifier, Binding::None);
    assert_eq!(refused, Err(format!("{:?}", ServerRefused::NotProved)));
}

#[test]
fn channel_binding_cannot_be_talked_away() {
    let first = |mechanism: &str, end_point: Option<&[u8]>, header: &str| {
        let verifier = Verifier::parse(RFC_VERIFIER).unwrap();
        let message = format!("{header},,n=,r=abc");
        protocol(challenge(verifier, mechanism, end_point, message.as_bytes(), "def"))
    };
    let hash = Some(&[7; 32][..]);
    assert_eq!(first(SCRAM_SHA_256, None, "n"), "accepted");
    assert_eq!(first(SCRAM_SHA_256, None, "y"), "accepted");
    assert_eq!(first(SCRAM_SHA_256, hash, "n"), "accepted");
    assert_eq!(first(SCRAM_SHA_256_PLUS, hash, "p=tls-server-end-point"), "accepted");
    assert_eq!(first(SCRAM_SHA_256, hash, "y"), "SCRAM channel binding negotiation error");
    for (mechanism, end_point, header) in [
        (SCRAM_SHA_256, hash, "p=tls-server-end-point"),
        (SCRAM_SHA_256_PLUS, hash, "n"),
        (SCRAM_SHA_256_PLUS, hash, "y"),
        (SCRAM_SHA_256, None, "x"),
    ] {
        assert_eq!(first(mechanism, end_point, header), "malformed SCRAM message");
    }
    assert_eq!(
        first(SCRAM_SHA_256_PLUS, hash, "p=tls-unique"),
        "unsupported SCRAM channel-binding type"
    );
    for mechanism in [SCRAM_SHA_256_PLUS, "PLAIN"] {
        assert_eq!(
            first(mechanism, None, "p=tls-server-end-point"),
            "client selected an invalid SASL authentication mechanism"
        );
    }
}

#[test]
fn any_first_and_last_message_is_answered_or_refused() {
    let parts =
        ["n", "y", "p=", "p=tls-server-end-point", ",", "a=x", "m=1", "n=", "r=", "r=q", "\u{e9}"];
    for a in parts {
        for b in parts {
            for c in parts {
                let text = format!("{a},{b},{c}");
                let verifier = Verifier::mock("x", b"y");
                let result = challenge(verifier, SCRAM_SHA_256, None, text.as_bytes(), "s");
                if let Ok(challenged) = result {
                    assert!(text.starts_with("n,") || text.starts_with("y,"), "{text}");
                    assert!(challenged.check(text.as_bytes()).is_err(), "{text}");
                }
            }
        }
    }
}

#[test]
fn a_mock_verifier_looks_like_one_and_stays_the_same() {
    let mock = |user| Verifier::mock(user, b"secret");
    assert!(mock("eve") == mock("eve"));
    assert!(mock("eve").salt != mock("bob").salt);
    assert_eq!((mock("eve").salt.len(), mock("eve").iterations), (16, 4096));
}

#[test]
fn only_whole_verifiers_are_read_and_none_is_printed() {
    let verifier = Verifier::parse(RFC_VERIFIER).unwrap();
    assert_eq!(verifier.iterations, 4096);
    assert_eq!(format!("{verifier:?}"), "Verifier { iterations: 4096, .. }");
    assert_eq!(format!("{:?}", rfc_keys()), "ScramKeys(..)");
    for wrong in [
        "",
        "md5aabbccddeeff00112233445566778899",
        "SCRAM-SHA-256$0:W22ZaJ0SNY7soEsUEjb6gQ==$AAAA:AAAA",
        &RFC_VERIFIER.replace("SHA-256", "SHA-1"),
        &RFC_VERIFIER[..RFC_VERIFIER.len() - 4],
        &RFC_VERIFIER.replace("4096", "many"),
    ] {
        assert!(Verifier::parse(wrong).is_none(), "{wrong}");
    }
}
