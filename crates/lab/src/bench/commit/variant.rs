//! The ways of running the gateway that are compared.
//!
//! Owns: their names and switches. Never: runs one.
//! A further way to measure is one more entry in [`known`].

use tutti_gateway::Switches;
use tutti_txn::coordinator::Form;

/// The way without a gateway: clients of each node itself.
pub(super) const DIRECT: &str = "direct";
/// The gateway as it is shipped; the aims are about it.
pub(super) const ROOMS_ON: &str = "rooms-on";
/// Nobody waits for anybody: what the rooms cost is seen against this.
pub(super) const ROOMS_OFF: &str = "rooms-off";

/// A gateway with some parts switched.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Variant {
    /// As the command line, the tables and the records have it.
    pub name: &'static str,
    pub switches: Switches,
}

/// All variants that can be asked for.
pub(super) fn known() -> Vec<Variant> {
    let shipped = Switches::default();
    vec![
        Variant { name: ROOMS_ON, switches: shipped },
        Variant { name: ROOMS_OFF, switches: Switches { rooms: false, ..shipped } },
        Variant { name: "apart", switches: Switches { form: Form::Apart, ..shipped } },
        Variant { name: "anchored", switches: Switches { form: Form::Anchored, ..shipped } },
    ]
}

/// The variant of this name, for the command line.
pub(super) fn find(name: &str) -> Result<Variant, String> {
    let known = known();
    known.iter().find(|variant| variant.name == name).copied().ok_or_else(|| {
        let names: Vec<&str> = known.iter().map(|variant| variant.name).collect();
        format!("there are {}", names.join(", "))
    })
}
